// Tests of the page's tables of a worker pool, in Node: its module has pure functions. Prints the number of cases.
import assert from 'node:assert/strict'
import { ago, changes, content, help, pageSize, postError, postRequest, queries, role, roleFacts, span, task, taskStates, until, worker, wrongPost } from '../../web/page/pool.js'

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

const now = Date.parse('2026-01-02T03:04:05Z')
const at = (s) => new Date(now + s * 1000).toISOString()
const roleItem = (state, fields, counts, can) => ({ kind: 'pool-role', id: 'builder', state, fields: { kind: 'managed', ...fields }, counts: { restarts: 0, max_restarts: 5, restart: 0, ...counts }, can })
const taskItem = (state, fields, counts, can) => ({ kind: 'pool-task', id: '7', state, fields: { created: at(-200), since: at(-100), ...fields }, counts: { attempts: 1, max_attempts: 5, fence: 0, late: 0, ...counts }, can })
const texts = (row) => row.cells.map((c) => c.text)
const hostile = '\u202e\u0007\x1b[31m<img src=x>' + 'x'.repeat(10_000)

test('a span has one unit, and each unit ends where the next begins', () => {
  assert.deepEqual([0, 0.4, 89.4, 90, 5399, 5400, 129599, 129600].map(span), ['0 s', '0 s', '89 s', '2 min', '90 min', '2 h', '36 h', '2 d'])
})

test('a time is in the past or in the future of the page, and a missing one is empty', () => {
  assert.deepEqual([ago(at(-30), now), ago(at(30), now), ago(undefined, now), ago('soon', now)], ['30 s ago', '0 s ago', '', ''])
  assert.deepEqual([until(at(30), now), until(at(0), now), until(at(-200), now), until(undefined, now)], ['for 30 s', 'ended 0 s ago', 'ended 3 min ago', ''])
})

test('each state of a role has words, and an unknown state is its own', () => {
  const words = (state) => texts(role(roleItem(state), now))[1]
  assert.deepEqual(['offline', 'requested', 'starting', 'busy', 'reachable', 'given-up', 'novelty'].map(words),
    ['offline', 'restart requested', 'starting', 'busy', 'reachable', 'failed', 'novelty'])
})

test('a role has the end of its heartbeats and of its lease, and its oldest task', () => {
  const row = role(roleItem('busy', { until: at(50), lease: at(-5), waiting: at(-300) }, { restarts: 2 }), now)
  assert.deepEqual(texts(row), ['builder', 'busy', 'managed', 'for 50 s', 'ended 5 s ago', '5 min ago', '2 of 5'])
  assert.deepEqual([row.key, row.pick, row.state, row.cells[3].title], ['builder', 'builder', 'busy', at(50)])
  assert.deepEqual(texts(role(roleItem('offline', { kind: 'attached' }), now)).slice(2), ['attached', '', '', 'none', ''])
})

test('the facts of a role have its last restart, and its back-off until a daemon gets it', () => {
  const facts = (d) => Object.fromEntries(roleFacts(d, now).filter(([, v]) => v !== null))
  assert.deepEqual(facts(roleItem('requested', { asked: at(-3), after: at(20), reason: 'it died' }, { restarts: 2, restart: 9 })), {
    State: 'restart requested', Kind: 'managed: a daemon restarts its workers', Restarts: '2 of 5 in succession', 'Last restart': 'number 9, requested 3 s ago',
    Reason: 'it died', 'Back-off': 'a daemon gets it in 20 s',
  })
  assert.equal(facts(roleItem('requested', { after: at(-1) }))['Back-off'], 'over: it waits for a daemon')
  assert.equal(facts(roleItem('starting', { starting: at(80), daemon: 'd' })).Starting, 'for 80 s, by the daemon d')
  assert.deepEqual(Object.keys(facts(roleItem('offline', { kind: 'attached' }))), ['State', 'Kind'])
})

test('a role that needs an operator has a text, and no other', () => {
  const waits = { waiting: at(-1) }
  const helps = [
    roleItem('given-up'), roleItem('offline', { ...waits, kind: 'attached' }), roleItem('requested', waits),
    roleItem('offline', waits), roleItem('offline', { kind: 'attached' }), roleItem('requested'), roleItem('busy', waits), { id: 'x', state: 'reachable' },
  ].map(help)
  assert.deepEqual(helps.map((t) => t !== ''), [true, true, true, false, false, false, false, false])
  assert.ok(helps[0].includes('reset the role') && helps[1].includes('dohost work') && helps[2].includes('dohost daemon'))
})

test('a worker has the kind of its role, and its task', () => {
  const d = { id: 'builder/c1', state: 'reachable', fields: { conn: 'c1', name: 'host', until: at(10), joined: at(-60), task: '7' } }
  assert.deepEqual(texts(worker(d, 'managed', now)), ['c1', 'host', 'managed', 'for 10 s', '7', '60 s ago'])
  assert.deepEqual(texts(worker({ id: 'builder/c2', state: 'unreachable' }, 'attached', now)), ['', '', 'attached', '', 'none', ''])
})

test('a task has its lease while a worker has it, and its notes', () => {
  const held = task(taskItem('running', { conn: 'c1', lease: at(20), progress: 'half' }, { fence: 3 }), now)
  assert.deepEqual(texts(held), ['7', 'running, 2 min', '3 min ago', '1 of 5', 'c1', '3', 'for 20 s', 'progress: half'])
  const failed = task(taskItem('failed', { reason: 'no paper' }, { attempts: 5, late: 2 }, ['delete', 'retry']), now)
  assert.deepEqual(texts(failed).slice(3), ['5 of 5', '', '', '', 'reason: no paper; late results: 2'])
  assert.deepEqual([held.can, failed.can, held.pick], ['', 'retry', '7'])
})

test('texts of clients are bounded, and have no invisible characters', () => {
  const rows = [
    role({ ...roleItem('offline'), id: hostile }, now), worker({ id: 'w', fields: { conn: hostile, name: hostile, task: hostile } }, hostile, now),
    task(taskItem('failed', { conn: hostile, progress: hostile, reason: hostile, lease: hostile, created: hostile }), now),
  ]
  for (const { cells } of rows) {
    for (const { text, title } of cells) {
      assert.ok(text.length <= 400 && title.length <= 400, `${text.length} and ${title.length} characters`)
      assert.equal(/[\u202e\u0007\x1b]/.test(text + title), false)
    }
  }
  for (const [, v] of roleFacts(roleItem('starting', { daemon: hostile, reason: hostile, starting: at(1) }), now)) assert.ok((v ?? '').length < 1000)
  for (const [, v] of content({ fields: { text: hostile, result: hostile } })) assert.ok(v.length <= 5000)
})

test('the content of a task has the texts that exist', () => {
  assert.deepEqual(content({ fields: { text: 'a', result: '', late1: 'b', key: 'k' } }), [['Text', 'a'], ['Late 1', 'b'], ['Key', 'k']])
  assert.deepEqual(content({}), [])
})

test('a poll asks for one page of the workers, and of the tasks of a state', () => {
  const of = (query) => Object.fromEntries(new URLSearchParams(query))
  const first = queries('a&b:c', { state: '', workers: [], tasks: [] })
  assert.deepEqual(of(first.workers), { kind: 'pool-worker', limit: String(pageSize), field: 'role:a&b:c' })
  assert.deepEqual(of(first.tasks), { kind: 'pool-task', limit: String(pageSize), field: 'role:a&b:c' })
  const later = queries('a', { state: 'failed', workers: ['x'], tasks: ['y', 'z'] })
  assert.deepEqual([of(later.workers).after, of(later.tasks).after, of(later.tasks).state, of(later.workers).state], ['x', 'z', 'failed', undefined])
  assert.deepEqual(taskStates.map(([state]) => state), ['', 'running', 'acknowledged', 'pending', 'failed', 'done'])
})

test('the events between two polls are new restarts and changes of the state, and few', () => {
  const kinds = (a, b) => changes(a, b).map((c) => c.kind)
  const of = (state, restart = 0, reason) => [roleItem(state, { reason }, { restart })]
  assert.deepEqual(changes(of('busy'), of('requested', 2, 'it\ndied')), [{ kind: 'requested', text: 'Role builder: restart 2 requested: it died' }])
  assert.deepEqual(changes(of('offline'), of('busy')), [{ kind: 'busy', text: 'Role builder is reachable' }])
  assert.deepEqual(kinds(of('busy'), of('reachable')), []) // a worker that has handed its task off
  assert.deepEqual(kinds(of('requested', 2), of('starting', 2)), ['starting'])
  assert.deepEqual(kinds(of('starting', 2), of('given-up', 2)), ['given-up'])
  assert.deepEqual(kinds([], of('busy')), []) // a role that a poll sees for the first time
  assert.deepEqual(kinds(of('busy'), []), [])
  const many = (state) => Array.from({ length: 100 }, (_, i) => ({ ...roleItem(state), id: `r${i}` }))
  assert.equal(changes(many('busy'), many('offline')).length, 5)
})

test('a post names its role, and has the text as it is', () => {
  const { path, body } = postRequest('/v1/objects/pool/p', 'a&id=b', ' "text"\n', 'k1')
  assert.deepEqual(Object.fromEntries(new URL(path, 'http://x').searchParams), { action: 'post', kind: 'pool-role', id: 'a&id=b' })
  assert.deepEqual(JSON.parse(body), { text: ' "text"\n', key: 'k1' })
  assert.deepEqual(['', ' \n', 'x'].map((t) => wrongPost(t) === ''), [false, false, true])
})

test('a post without an answer may be repeated, and a refused one not', () => {
  assert.equal(postError({ status: 400, message: 'too long' }), 'The task is not posted: too long')
  for (const status of [undefined, 503]) assert.ok(postError({ status, message: 'cut' }).startsWith('The pool may have the task or not: cut. Post it again'))
})

console.log(cases)
