// Tests of the page's processing of frames and texts, in Node: its modules are pure functions. Prints the number of
// cases.
import assert from 'node:assert/strict'
import { parse, textOf } from '../../web/page/markdown.js'
import { busy, empty, shown, take, unsent } from '../../web/page/conversation.js'
import { incomplete, items, log, outcomes, pretty, request, short, waiting, wrongResult } from '../../web/page/decide.js'
import { changes, Watch } from '../../web/page/objectpoll.js'

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

test('changes between two views', () => {
  const look = (epoch, live, runs, state = 'running') => ({ reached: true, object: { epoch, live }, details: [{ kind: 'request', id: 'r', state, counts: { runs } }] })
  const kinds = (a, b, epoch) => changes(a, b, epoch).map((c) => c.kind)
  assert.deepEqual(kinds(null, look('1.1', true, 1), ''), [])
  assert.deepEqual(kinds(look('1.1', true, 1), look('1.2', true, 2), '1.1'), ['epoch', 'recovered'])
  assert.deepEqual(kinds(look('1.1', true, 1), look('', false, 1), '1.1'), ['cold'])
  assert.deepEqual(kinds(look('1.1', true, 1), { reached: false }, '1.1'), ['gone'])
  assert.deepEqual(kinds({ ...look('1.1', true, 1), reached: false }, look('2.1', true, 2), '1.1'), ['back', 'epoch', 'recovered'])
  assert.deepEqual(kinds(look('1.1', true, 1), look('1.1', true, 1, 'completed'), '1.1'), ['completed'])
})

const at = (s) => new Date(s * 1000).toISOString()
const call = (id, state, since, can, fields) => ({ kind: 'call', id, state, can, digest: 'd' + id, fields: { tool: 'stamp', input: '{}', since: at(since), ...fields } })

test('the calls that wait for an operator are the first, and the newest of the ended ones follow the open ones', () => {
  const list = items([
    call('run', 'running', 1), call('old', 'completed', 2), call('b', 'approval', 4, ['approve', 'deny']), call('new', 'denied', 5),
    call('yes', 'pending', 6, ['deny']), call('a', 'approval', 3, ['approve', 'deny', 'novelty']), { kind: 'fiber', id: 'f' },
  ], 'call')
  assert.deepEqual(list.map((i) => i.id), ['a', 'b', 'run', 'yes', 'new', 'old'])
  assert.deepEqual(list.map((i) => i.word), ['waits for approval', 'waits for approval', 'running', 'approved', 'denied', 'completed'])
  assert.equal(waiting(list), 2)
  assert.deepEqual(list[0].can, ['approve', 'deny'])
})

test('two calls with one id are two rows, and an item without fields is a row', () => {
  assert.deepEqual(items([call('c', 'completed', 2), call('c', 'approval', 1, ['approve'])], 'call').map((i) => i.key), ['c#2', 'c'])
  assert.equal(items([{ kind: 'operation', id: 'op_1', state: 'unknown', can: ['done', 'not-done'] }], 'operation')[0].word, 'outcome unknown')
})

test('a call that another agent answers has the agent and its progress', () => {
  const [item] = items([call('c', 'external', 1, [], { asks: 'researcher/ada', request: 'req_1', progress: '… is 7' })], 'call')
  assert.deepEqual(item.lines, [['Asks', 'researcher/ada'], ['Progress', '… is 7']])
})

test('the counts of unknown outcomes have the rate of false unknowns', () => {
  const of = (id, counts, fields) => ({ kind: 'outcomes', id, counts, fields })
  assert.deepEqual(outcomes([{ kind: 'operation' }, of('charge', { unknown: 4, done: 1, not_done: 2 }, { policy: 'AtMostOnce' }), of('a\u202e', { unknown: 1, done: 0, not_done: 0 })]), [
    'charge (AtMostOnce): 4 unknown so far, 3 resolved, 2 without an effect: 67 % false unknowns', 'a\\u{202e}: 1 unknown so far, none resolved',
  ])
  assert.deepEqual(outcomes([{ kind: 'operation' }]), [])
})

test('a decision has the digest of its item, and only a result has a body', () => {
  const [item] = items([call('c&d', 'approval', 1, ['approve'])], 'call')
  const made = request('/v1/x', 'approve', item, { actor: 'mia & co', reason: '', result: '1' })
  assert.deepEqual(Object.fromEntries(new URL(made.path, 'http://x').searchParams), { action: 'approve', kind: 'call', id: 'c&d', digest: 'dc&d', actor: 'mia & co' })
  assert.equal(made.body, undefined)
  assert.equal(request('/v1/x', 'done', item, { result: '12345678901234567890' }).body, '12345678901234567890')
  assert.deepEqual(['', ' ', 'r_1', '"r_1"', 'null'].map((t) => wrongResult(t) === ''), [false, false, false, true, true])
})

test('an external call is named by its key, and its error is a JSON string', () => {
  const [item] = items([call('c', 'external', 1, ['complete', 'fail'], { key: 'call_1' })], 'call')
  assert.equal(new URL(request('/v1/x', 'complete', item, {}).path, 'http://x').searchParams.get('id'), 'call_1')
  assert.equal(request('/v1/x', 'complete', item, { result: '1' }).body, '1')
  assert.equal(request('/v1/x', 'fail', item, { result: ' no "paper" ' }).body, '"no \\"paper\\""')
  assert.deepEqual([wrongResult('', 'fail') === '', wrongResult('no paper', 'fail'), waiting([item])], [false, '', 0])
})

test('the newest event of the audit log is the first', () => {
  const event = (id, state, fields) => ({ kind: 'approval', id, state, fields: { tool: 'stamp', call: 'c', time: at(1), ...fields } })
  const list = log([event('9', 'requested'), event('10', 'approved', { actor: 'mia', reason: 'checked', late: 'true' })])
  assert.deepEqual(list.map((e) => [e.text, e.reason]), [['stamp approved by mia, too late: no effect', 'checked'], ['stamp asked for approval', '']])
})

test('an input has its own numbers, names and characters', () => {
  const text = '{"n":12345678901234567890,"n":[1e2,{},[ ]],"t":"x{\\"y,"}'
  assert.equal(pretty(text), '{\n  "n": 12345678901234567890,\n  "n": [\n    1e2,\n    {},\n    []\n  ],\n  "t": "x{\\"y,"\n}')
  assert.equal(pretty('{"a":"b'), '{\n  "a": "b…')
  assert.equal(pretty('"\u202e"'), '"\\u{202e}"')
  assert.equal(short('a\u200b \n b', 99), 'a\\u{200b} b')
  assert.equal(short('abcd', 3), 'ab…')
  assert.deepEqual(['{}', '{', ''].map(incomplete), [false, true, false])
  assert.ok(pretty('{'.repeat(4096)).length < 200_000) // deep texts must not stop the page
})

const asks = []
const seen = await new Promise((resolve) => {
  globalThis.document = { hidden: false }
  const answers = { '': [{ kind: 'fiber' }, { kind: 'call', id: 'first' }], call: [{ kind: 'call', id: 'c' }], operation: [], approval: [{ kind: 'approval' }], 'outcomes': [{ kind: 'outcomes' }] }
  const host = { ask: async (method, path) => {
    asks.push(method)
    if (!path.includes('/details')) return { live: false }
    const kind = new URL(path, 'http://x').searchParams.get('kind') ?? ''
    return { details: answers[kind], more: kind === '' || kind === 'approval' }
  } }
  const watch = new Watch(host, { class: 'C', name: 'n' }, () => false, (look) => {
    watch.end()
    resolve(look)
  })
})
test('the items that an operator decides about are asked for by their kind, if there are too many others', () => {
  assert.deepEqual(seen.details.map((d) => d.id ?? d.kind), ['fiber', 'c', 'approval', 'outcomes'])
  assert.deepEqual(seen.more, ['approval'])
  assert.deepEqual(new Set(asks), new Set(['GET']))
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
