// Makes a conversation of frames: take is a pure function of the earlier state and a frame.
import { add, begin } from './chunks.js'

// empty is a conversation without any state.
export const empty = {
  known: false, // the transcript has arrived
  messages: [], // of the transcript
  asked: [], // questions that are not in the transcript yet: {id, message, refused}
  reply: null, // the reply that streams: {id, acc, continues, users}
  replay: null, // its repeated chunks, which replace it when they are complete
  waits: '', // id of a request that waits
  recovering: false, // the reply was interrupted, and has had no chunk since
  connected: false,
  failure: '', // of the last reply
  failed: '', // its request
}

// take takes a frame of the wire, or an event of the page: asked, refused, away, back.
export function take(s, f) {
  switch (f.type) {
    case 'asked':
      return { ...s, asked: [...s.asked, { id: f.id, message: f.message, refused: '' }], failure: '', failed: '' }
    case 'refused': // the last frame has ended the connection, and would again
      return { ...s, asked: s.asked.map((a) => (a.refused ? a : { ...a, refused: f.why })) }
    case 'away':
      return { ...s, connected: false, replay: null, waits: '' }
    case 'back':
      return { ...s, connected: true }
    case 'cf_agent_chat_messages':
      return transcript(s, f.messages)
    case 'cf_agent_message_updated':
      return f.message?.id ? { ...s, messages: s.messages.map((m) => (m.id === f.message.id ? f.message : m)) } : s
    case 'cf_agent_chat_clear':
      return { ...empty, known: true, connected: s.connected }
    case 'cf_agent_stream_pending':
      return { ...s, waits: f.id }
    case 'cf_agent_stream_resume_none':
      return f.reason === 'idle' ? { ...s, reply: null, replay: null, waits: '', recovering: false } : s
    case 'cf_agent_chat_recovering':
      return { ...s, recovering: Boolean(f.recovering) }
    case 'cf_agent_use_chat_response':
      return response(s, f)
  }
  return s
}

const isMessage = (m) => m && typeof m.id === 'string' && Array.isArray(m.parts)

function transcript(s, list) {
  if (!Array.isArray(list)) return s
  const messages = list.filter(isMessage)
  const has = new Set(messages.map((m) => m.id))
  return { ...s, known: true, messages, asked: s.asked.filter((a) => !has.has(a.message.id)) }
}

function response(s, f) {
  if (f.done) return ended(s, f)
  if (f.replayComplete) {
    if (s.replay?.id !== f.id) return { ...s, replay: null }
    return { ...s, reply: s.replay, replay: null, waits: '' }
  }
  let chunk
  try {
    chunk = JSON.parse(f.body)
  } catch {
    return s
  }
  const slot = f.replay ? 'replay' : 'reply'
  let of = s[slot]?.id === f.id ? s[slot] : newReply(s, f)
  if (typeof f.seq === 'number' && f.seq < of.acc.next) return s // a chunk that is there already
  of = { ...of, acc: { ...add(of.acc, chunk), next: (f.seq ?? of.acc.next) + 1 } }
  const next = { ...s, [slot]: of }
  return f.replay ? next : { ...settle(next, f.id), waits: '', recovering: false, failure: '', failed: '' }
}

function newReply(s, f) {
  const older = f.continuation ? s.messages.findLast((m) => m.role === 'assistant') : null
  const asked = s.asked.find((a) => a.id === f.id)
  return { id: f.id, continues: Boolean(older), after: asked?.message.id ?? (s.reply?.id === f.id ? s.reply.after : undefined), acc: begin(older) }
}

// settle moves a question into the transcript: its answer proves that it has arrived.
function settle(s, id) {
  const a = s.asked.find((x) => x.id === id)
  if (!a) return s
  const known = s.messages.some((m) => m.id === a.message.id)
  return { ...s, messages: known ? s.messages : [...s.messages, a.message], asked: s.asked.filter((x) => x !== a) }
}

function ended(s, f) {
  const refused = f.error && !f.messageIds && s.asked.some((a) => a.id === f.id)
  if (refused) {
    return { ...s, asked: s.asked.map((a) => (a.id === f.id ? { ...a, refused: f.body || 'refused' } : a)) }
  }
  s = settle(s, f.id)
  if (s.reply?.id === f.id) s = { ...s, messages: withReply(s), reply: null, recovering: false }
  if (s.replay?.id === f.id) s = { ...s, replay: null }
  if (s.waits === f.id) s = { ...s, waits: '' }
  return f.error ? { ...s, failure: f.body || 'the reply has failed', failed: f.id } : s
}

// withReply are the messages with the reply that streams, in its place. If the transcript has that message, it is
// complete, unless the reply continues an older message.
function withReply(s) {
  const m = s.reply?.acc.message
  if (!m || m.parts.length === 0) return s.messages
  const at = s.messages.findIndex((x) => x.id === m.id)
  if (at >= 0) return s.reply.continues ? s.messages.with(at, m) : s.messages
  const after = s.messages.findIndex((x) => x.id === s.reply.after)
  return after < 0 ? [...s.messages, m] : s.messages.toSpliced(after + 1, 0, m)
}

// shown is the visible messages, in order: {message, live, refused, waiting}.
export function shown(s) {
  const live = s.reply?.acc.message.id
  const items = withReply(s).map((message) => ({
    message, live: message.id === live && (s.reply.continues || !s.messages.some((m) => m.id === live)),
  }))
  return [...items, ...s.asked.map((a) => ({ message: a.message, refused: a.refused, waiting: !a.refused }))]
}

// busy is the id of the request that a stop would end, or empty.
export function busy(s) {
  return s.reply?.id || s.asked.findLast((a) => !a.refused)?.id || s.waits || ''
}

// unsent are the questions that may not have arrived: they are sent again, which does no harm.
export const unsent = (s) => s.asked.filter((a) => !a.refused)
