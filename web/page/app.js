// The page: a conversation with an agent and, for operators, the agent's object.
import { Announcer } from './announce.js'
import { Costs } from './cost.js'
import { by, newID, setText } from './dom.js'
import { Operator } from './operate.js'
import { markCuts } from './render.js'
import { busy, empty, shown, take, unsent } from './conversation.js'
import { Thread } from './thread.js'
import { Host, Wire } from './wire.js'

const host = new Host()
const announcer = new Announcer(by('said'))
const thread = new Thread(by('items'), by('earlier'), (kind, ...args) => kind === 'approve' && approve(...args))
const operator = new Operator(host, {
  busy: () => Boolean(busy(talk)), request: () => request, cost: (id) => costs.get(id), say: (text) => announcer.say(text),
})

const tooLarge = 1009 // the close code for a frame that is too large

let facts = null // of the host
let chosen = null // {class, name, of}: of is the class's facts
let wire = null
let talk = empty
let costs = new Costs()
let request = '' // the last one seen
let replies = new Map() // request by its message
let cuts = [] // {message, at}
let stopping = '' // id of the request to stop when there is a connection
let drawn = false
let link = 'connecting'

// choose opens a conversation.
function choose(className, name) {
  const of = facts.classes.find((c) => c.name === className) ?? facts.classes.find((c) => c.chat) ?? facts.classes[0]
  if (!of) return banner('This host has no class to show.')
  chosen = { class: of.name, name: objectName(name), of }
  wire?.close()
  wire = null
  talk = { ...empty, known: !of.chat }
  costs = new Costs()
  cuts = []
  replies = new Map()
  request = stopping = ''
  thread.fresh()
  by('class').value = of.name
  by('name').value = chosen.name
  const hash = `#${of.name}/${chosen.name}`
  if (location.hash !== hash) history.replaceState(null, '', hash)
  document.title = `${of.name}/${chosen.name} · dohost`
  suggestions(of)
  if (facts.operator) operator.open(chosen, Boolean(of.pool))
  by('pool').hidden = !of.pool
  document.body.dataset.of = of.pool ? 'pool' : 'talk'
  by('ask').hidden = !of.chat
  if (of.chat) {
    wire = new Wire(host, `${facts.agents}/${of.url}/${chosen.name}`, { facts: learn, frame, state: linkState })
  } else {
    linkState('none')
  }
  draw()
}

// objectName is the object's name of an agent: the encoded name of its URL.
function objectName(text) {
  const name = text.trim().replace(/[^\w.~!$&'()*+,;=:@%-]/g, encodeURIComponent)
  return name === '' || name === '.' || name === '..' ? 'me' : name
}

function suggestions(of) {
  setText(by('hint'), !of.chat ? `${of.name} is not a chat agent: this page shows only its object.`
    : facts.operator ? 'Then press Evict during the answer. The sentence continues.' : 'An answer continues where it stopped, even after its process has ended.')
  by('start').querySelector('h2').textContent = of.chat ? 'Ask something' : 'Nothing to talk to'
  by('questions').replaceChildren(...(of.questions ?? []).map((q) => {
    const b = document.createElement('button')
    b.type = 'button'
    b.className = 'question'
    b.textContent = q
    b.addEventListener('click', () => ask(q))
    return b
  }))
}

// learn takes the facts of the present process.
function learn(f) {
  if (facts && f.process !== facts.process) operator.process()
  facts = f
}

function linkState(state, detail, code) {
  if (code === tooLarge) talk = take(talk, { type: 'refused', why: detail || 'the message is too large' })
  const cut = talk.reply && link === 'open' && state !== 'open'
  link = state
  const words = { connecting: 'connecting', open: 'connected', away: 'disconnected', gone: 'host unreachable', none: 'no chat', refused: 'refused', denied: 'no token' }
  if (state !== 'connecting' || by('link').dataset.state === 'connecting') {
    by('link').dataset.state = state
    setText(by('link'), words[state])
  }
  if (state === 'open') {
    talk = take(talk, { type: 'back' })
    for (const a of unsent(talk)) send(a)
    if (stopping) wire.send({ type: 'cf_agent_chat_request_cancel', id: stopping })
    stopping = ''
    banner('')
  } else if (state !== 'connecting') {
    talk = take(talk, { type: 'away' })
  }
  if (cut && costs.cut(talk.reply.id)) {
    const m = talk.reply.acc.message.id
    const root = thread.root(m)?.querySelector('.parts')
    if (root) cuts.push({ message: m, at: root.textContent.length })
    operator.happened('cut', `Cut off at chunk ${talk.reply.acc.next}`)
  }
  if (state === 'gone') banner(goneText())
  if (state === 'refused') banner(`The agent has closed the connection: ${detail}. Reload the page to try again.`)
  if (state === 'denied') askToken()
  operator.look()
  draw()
}

function goneText() {
  if (facts?.supervised) return 'The process has ended. The supervisor is starting it again…'
  if (facts?.operator) return 'The process has ended. Start it again: dohost serve. This page reconnects automatically.'
  return 'The server is unreachable. This page reconnects automatically when it is back.'
}

function banner(text) {
  by('banner').hidden = text === ''
  setText(by('banner'), text)
}

function frame(f) {
  if (f.type === 'cf_agent_use_chat_response' && !f.done && !f.replayComplete) {
    if (request !== f.id && !f.replay) operator.happened('begun', 'A reply begins')
    request = f.id
    const gap = costs.chunk(f.id, f)
    if (gap) operator.happened('recovered', `The next word, after ${(gap / 1000).toFixed(2)} s`)
  }
  const before = talk.reply
  talk = take(talk, f)
  if (before && talk.reply?.id === before.id) costs.grew(before.id, textOf(before), textOf(talk.reply))
  if (talk.reply) replies.set(talk.reply.acc.message.id, talk.reply.id)
  if (f.type === 'cf_agent_chat_clear') cuts = []
  if (f.done) setTimeout(() => operator.look(), 150) // when its fiber has ended
  draw()
}

const textOf = (reply) => plainText(reply.acc.message)
const plainText = (m) => m.parts.filter((p) => p.type === 'text').map((p) => p.text).join('\n')

// draw paints the state, at most once a frame.
function draw() {
  if (drawn) return
  drawn = true
  requestAnimationFrame(() => {
    drawn = false
    paintAll()
  })
}

function paintAll() {
  const items = shown(talk)
  const box = by('thread')
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 60
  const notes = new Map()
  for (const [message, of] of replies) notes.set(message, costs.line(of))
  thread.render(items, notes, link !== 'open' || talk.recovering)
  markCuts(cuts.map((c) => ({ root: thread.root(c.message)?.querySelector('.parts'), at: c.at })).filter((c) => c.root))
  by('start').hidden = items.length > 0 || !talk.known
  by('failure').hidden = !talk.failure
  setText(by('failure'), talk.failure)
  const id = busy(talk)
  by('stop').hidden = !id
  by('clear').hidden = items.length === 0
  if (atEnd) box.scrollTop = box.scrollHeight
  by('newest').hidden = box.scrollHeight - box.scrollTop - box.clientHeight < 200
  const last = items.findLast((i) => i.message.role === 'assistant')
  if (last) {
    announcer.follow(last.message.id, plainText(last.message), !last.live)
  }
  operator.cost()
}

function send(a) {
  wire?.send({
    type: 'cf_agent_use_chat_request', id: a.id,
    init: { method: 'POST', body: JSON.stringify({ messages: [a.message], trigger: 'submit-message' }) },
  })
}

// ask asks; without a connection as soon as there is one.
function ask(text) {
  const a = { id: newID('req-'), message: { id: newID('user-'), role: 'user', parts: [{ type: 'text', text }] } }
  talk = take(talk, { type: 'asked', ...a })
  if (link === 'open') send(a)
  else wire.now()
  operator.look()
  draw()
  requestAnimationFrame(() => (by('thread').scrollTop = by('thread').scrollHeight))
}

function stop() {
  const id = busy(talk)
  if (id && !wire?.send({ type: 'cf_agent_chat_request_cancel', id })) stopping = id
}

function approve(toolCallId, approved) {
  wire?.send({ type: 'cf_agent_tool_approval', toolCallId, approved, autoContinue: true })
}

function askToken() {
  const dialog = by('token')
  if (host.hasToken) setText(by('token-why'), 'The server does not accept the token that you entered.')
  if (!dialog.open) dialog.showModal()
}

function submit() {
  const box = by('question')
  if (!box.value.trim() || !wire) return // the text stays until there is a connection
  ask(box.value)
  box.value = ''
  fit()
}

function fit() {
  const box = by('question')
  box.style.height = 'auto'
  box.style.height = Math.min(box.scrollHeight + 2, 180) + 'px'
}

function listen() {
  by('ask').addEventListener('submit', (e) => {
    e.preventDefault()
    submit()
  })
  by('question').addEventListener('input', fit)
  by('question').addEventListener('keydown', (e) => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
      e.preventDefault()
      submit()
    }
  })
  document.addEventListener('keydown', (e) => {
    if (e.key === 'Escape' && !document.querySelector('dialog[open]')) stop()
  })
  by('stop').addEventListener('click', () => {
    stop()
    by('question').focus()
  })
  by('clear').addEventListener('click', () => {
    if (!wire?.send({ type: 'cf_agent_chat_clear' })) return
    talk = { ...empty, known: true, connected: true }
    cuts = []
    draw()
    by('question').focus()
  })
  by('newest').addEventListener('click', () => (by('thread').scrollTop = by('thread').scrollHeight))
  by('thread').addEventListener('scroll', () => draw(), { passive: true })
  by('choose').addEventListener('submit', (e) => e.preventDefault())
  for (const id of ['class', 'name']) by(id).addEventListener('change', () => choose(by('class').value, by('name').value))
  addEventListener('hashchange', fromHash)
  addEventListener('online', () => wire?.now())
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) return
    wire?.now()
    operator.look()
  })
  by('token').addEventListener('close', () => {
    host.token = by('token-text').value.trim()
    by('token-text').value = ''
    begin()
  })
}

function fromHash() {
  let hash = location.hash.slice(1)
  try {
    hash = decodeURI(hash)
  } catch {
    // it is taken as it stands
  }
  const [className, ...name] = hash.split('/')
  choose(className, name.join('/') || 'me')
}

// begin gets the facts of the host, when it answers.
async function begin() {
  try {
    facts = await host.facts()
  } catch (err) {
    if (err.status === 401) return askToken()
    banner(goneText())
    return setTimeout(begin, 1000)
  }
  banner('')
  document.body.dataset.operator = String(Boolean(facts.operator))
  by('class').replaceChildren(...facts.classes.map((c) => new Option(c.name, c.name)))
  operator.facts(facts)
  fromHash()
  if (matchMedia('(hover: hover)').matches) by('question').focus() // a phone would cover half of the page
}

listen()
begin()
