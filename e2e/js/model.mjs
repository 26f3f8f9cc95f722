// Tests of the page's processing of frames and texts, in Node: its modules are pure functions. Prints the number of
// cases.
import assert from 'node:assert/strict'
import { parse, textOf } from '../../web/page/markdown.js'
import { busy, empty, shown, take, unsent } from '../../web/page/conversation.js'
import { changes } from '../../web/page/objectpoll.js'

let cases = 0
const test = (name, run) => {
  cases++
  try {
    run()
  } catch (err) {
    err.message = `${name}: ${err.message}`
    throw err
  }
}

const user = (id, text) => ({ id, role: 'user', parts: [{ type: 'text', text }] })
const frames = (s, ...list) => list.reduce(take, s)
const chunk = (id, seq, body, more) => ({ type: 'cf_agent_use_chat_response', id, seq, body: JSON.stringify(body), done: false, ...more })
const delta = (id, seq, text, more) => chunk(id, seq, { type: 'text-delta', id: 't', delta: text }, more)
const starts = (id) => [chunk(id, 0, { type: 'start', messageId: 'm' + id }), chunk(id, 1, { type: 'text-start', id: 't' })]
const done = (id, more) => ({ type: 'cf_agent_use_chat_response', id, body: '', done: true, outcome: 'completed', messageIds: ['u'], ...more })
const transcript = (...messages) => ({ type: 'cf_agent_chat_messages', messages })
const texts = (s) => shown(s).map((i) => i.message.parts.filter((p) => p.type === 'text').map((p) => p.text).join(''))
const asked = frames(empty, transcript(), { type: 'asked', id: 'r', message: user('u', 'why?') })

test('an answer grows, and stays when it has ended', () => {
  let s = frames(asked, ...starts('r'), delta('r', 2, 'be'), delta('r', 3, 'cause'))
  assert.deepEqual(texts(s), ['why?', 'because'])
  assert.equal(busy(s), 'r')
  s = frames(s, done('r'))
  assert.deepEqual(texts(s), ['why?', 'because'])
  assert.equal(busy(s), '')
})

test('a chunk that was seen changes nothing', () => {
  const s = frames(asked, ...starts('r'), delta('r', 2, 'be'))
  assert.equal(take(s, delta('r', 2, 'be')), s)
})

test('what is shown again takes its place when it is whole, and not before', () => {
  let s = frames(asked, ...starts('r'), delta('r', 2, 'be'), { type: 'away' }, transcript(user('u', 'why?')))
  for (const f of [...starts('r'), delta('r', 3, 'because')]) {
    s = take(s, { ...f, replay: true })
    assert.deepEqual(texts(s), ['why?', 'be'])
  }
  s = take(s, { ...done('r'), done: false, replay: true, replayComplete: true })
  assert.deepEqual(texts(s), ['why?', 'because'])
  assert.deepEqual(texts(take(s, delta('r', 4, ' of it'))), ['why?', 'because of it'])
})

test('one that was cut off twice while it was shown again', () => {
  let s = frames(asked, ...starts('r'), delta('r', 2, 'be'), { type: 'away' })
  s = frames(s, ...starts('r').map((f) => ({ ...f, replay: true })), { type: 'away' })
  assert.deepEqual(texts(s), ['why?', 'be'])
})

test('one that has ended while nobody was there', () => {
  let s = frames(asked, ...starts('r'), delta('r', 2, 'be'), { type: 'away' })
  const whole = { id: 'mr', role: 'assistant', parts: [{ type: 'text', text: 'because' }] }
  s = frames(s, transcript(user('u', 'why?'), whole))
  assert.deepEqual(texts(s), ['why?', 'because'])
  s = frames(s, { type: 'cf_agent_stream_resume_none', reason: 'idle' })
  assert.deepEqual(texts(s), ['why?', 'because'])
  assert.equal(busy(s), '')
})

test('one that goes on in an older message', () => {
  const older = { id: 'mx', role: 'assistant', parts: [{ type: 'text', text: 'first.' }] }
  let s = frames(empty, transcript(user('u', 'why?'), older))
  s = frames(s, chunk('c', 0, { type: 'text-start', id: 't' }, { continuation: true }), delta('c', 1, ' second.', { continuation: true }))
  assert.deepEqual(texts(s), ['why?', 'first. second.'])
  assert.deepEqual(texts(frames(s, done('c'))), ['why?', 'first. second.'])
})

test('a question is asked again until it is known to have come', () => {
  assert.equal(unsent(asked).length, 1)
  assert.equal(unsent(take(asked, transcript(user('u', 'why?')))).length, 0)
  assert.equal(unsent(take(asked, starts('r')[0])).length, 0)
})

test('a question that is not taken says why', () => {
  const s = take(asked, { ...done('r'), messageIds: undefined, outcome: 'error', error: true, body: 'no' })
  assert.deepEqual(shown(s).map((i) => i.refused), ['no'])
  assert.equal(busy(s), '')
})

test('a reply that has failed says why, until the next is asked for', () => {
  let s = frames(asked, ...starts('r'), done('r', { outcome: 'error', error: true, body: 'no seeds' }))
  assert.equal(s.failure, 'no seeds')
  s = take(s, { type: 'asked', id: 'r2', message: user('u2', 'again') })
  assert.equal(s.failure, '')
})

test('an answer stands behind its question, before one that waits', () => {
  let s = take(asked, { type: 'asked', id: 'r2', message: user('u2', 'and?') })
  s = frames(s, ...starts('r'), delta('r', 2, 'because'))
  assert.deepEqual(texts(s), ['why?', 'because', 'and?'])
  s = frames(s, transcript(user('u', 'why?'), user('u2', 'and?')))
  assert.deepEqual(texts(s), ['why?', 'because', 'and?'])
})

test('what is unknown changes nothing', () => {
  for (const f of [{ type: 'novelty' }, chunk('r', 2, { type: 'novelty' }), { ...chunk('r', 2, {}), body: '{' }, transcript(null, {}, { id: 1 }, user('u', 'why?'))]) {
    const s = frames(asked, ...starts('r').slice(0, 1))
    assert.deepEqual(texts(take(s, f)), texts(s))
  }
})

test('a call of a tool does not go back', () => {
  const tool = (seq, type, more) => chunk('r', seq, { type, toolCallId: 'c', ...more })
  const s = frames(asked, tool(0, 'tool-input-available', { toolName: 'time', input: {} }), tool(1, 'tool-output-available', { output: 7 }),
    tool(2, 'tool-input-available', { toolName: 'time', input: {} }))
  assert.deepEqual(shown(s).at(-1).message.parts, [{ type: 'tool-time', toolCallId: 'c', state: 'output-available', input: {}, output: 7, preliminary: undefined }])
})

test('cleared', () => {
  assert.deepEqual(shown(frames(asked, ...starts('r'), { type: 'cf_agent_chat_clear' })), [])
})

test('what has happened between two looks', () => {
  const look = (epoch, live, runs, state = 'running') => ({ reached: true, object: { epoch, live }, details: [{ kind: 'request', id: 'r', state, counts: { runs } }] })
  const kinds = (a, b, epoch) => changes(a, b, epoch).map((c) => c.kind)
  assert.deepEqual(kinds(null, look('1.1', true, 1), ''), [])
  assert.deepEqual(kinds(look('1.1', true, 1), look('1.2', true, 2), '1.1'), ['epoch', 'recovered'])
  assert.deepEqual(kinds(look('1.1', true, 1), look('', false, 1), '1.1'), ['cold'])
  assert.deepEqual(kinds(look('1.1', true, 1), { reached: false }, '1.1'), ['gone'])
  assert.deepEqual(kinds({ ...look('1.1', true, 1), reached: false }, look('2.1', true, 2), '1.1'), ['back', 'epoch', 'recovered'])
  assert.deepEqual(kinds(look('1.1', true, 1), look('1.1', true, 1, 'completed'), '1.1'), ['completed'])
})

test('Markdown becomes blocks', () => {
  const text = '# A\none **two** `three` [four](https://x.y) [five](docs/x.md) https://z.w/.\n- six\n- seven\n\n2. eight\n```go\nnine\n```\nten'
  assert.deepEqual(parse(text, true).map((b) => b.kind), ['h', 'p', 'ul', 'ol', 'pre', 'p'])
  assert.deepEqual(parse(text, true)[1].inline.map((r) => r.kind), ['text', 'strong', 'text', 'code', 'text', 'link', 'text', 'link'])
  assert.equal(parse('[x](javascript:alert)', true)[0].inline[0].kind, 'text')
})

test('a long line of blanks ends', () => { // a match that backtracks for each of them would take half an hour
  const blanks = ' '.repeat(1_000_000)
  for (const before of ['', '#', '-', '1.', '```']) {
    parse(before + blanks + 'x', false)
    parse(before + blanks + 'x\u2028y', false)
  }
})

// A text that grows only grows on the screen, with any markup.
const pieces = ['*', '**', '`', '```', '[', ']', '(', ')', '#', ' ', '\n', '-', '1', '.', 'a', 'word', 'https://x.y/z', '[a](b)']
let seed = 7
const next = (n) => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % n
const strings = 5000
for (let i = 0; i < strings; i++) {
  test('a text that grows', () => {
    const whole = Array.from({ length: 1 + next(24) }, () => pieces[next(pieces.length)]).join('')
    let before = ''
    for (let n = 0; n <= whole.length + 1; n++) {
      const now = textOf(parse(whole.slice(0, n), n > whole.length))
      assert.ok(now.startsWith(before), `${JSON.stringify(whole.slice(0, n))} is ${JSON.stringify(now)} after ${JSON.stringify(before)}`)
      before = now
    }
  })
}
console.log(cases)
