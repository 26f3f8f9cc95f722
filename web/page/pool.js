// A worker pool as rows of tables: pure functions over the items of the object.
import { short } from './decide.js'

export const pageSize = 50 // workers, or tasks, in a table

const roleWords = {
  offline: 'offline', requested: 'restart requested', starting: 'starting', busy: 'busy', reachable: 'reachable', 'given-up': 'failed',
}

// taskStates are the choices of the list of tasks.
export const taskStates = [
  ['', 'not done'], ['running', 'running'], ['acknowledged', 'acknowledged'], ['pending', 'pending'], ['failed', 'failed'], ['done', 'done'],
]

// span is a number of seconds in words.
export function span(s) {
  if (s < 90) return `${Math.round(s)} s`
  if (s < 5400) return `${Math.round(s / 60)} min`
  return s < 129600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`
}

// ago is the time since a moment, and until the time up to one: '' for none.
export const ago = (text, now) => {
  const s = (now - Date.parse(text)) / 1000
  return Number.isNaN(s) ? '' : `${span(Math.max(0, s))} ago`
}
export const until = (text, now) => {
  const s = (Date.parse(text) - now) / 1000
  if (Number.isNaN(s)) return ''
  return s > 0 ? `for ${span(s)}` : `ended ${span(-s)} ago`
}

const cell = (text, title = '') => ({ text: short(text, 160), title: title && short(title, 400) })
const moment = (text, at) => ({ text, title: short(at ?? '', 40) })

// role is the row of a role: {key, state, cells}.
export function role(d, now) {
  const { fields: of = {}, counts: n = {} } = d
  return {
    key: d.id, state: d.state, pick: d.id,
    cells: [
      cell(d.id), cell(roleWords[d.state] ?? d.state), cell(of.kind ?? ''), moment(until(of.until, now), of.until), moment(until(of.lease, now), of.lease),
      moment(of.waiting ? ago(of.waiting, now) : 'none', of.waiting),
      cell(of.kind === 'managed' ? `${n.restarts ?? 0} of ${n.max_restarts}` : ''),
    ],
  }
}

// roleFacts are the facts of a role: [[term, value]].
export function roleFacts(d, now) {
  const { fields: of = {}, counts: n = {} } = d
  const later = of.after && Date.parse(of.after) > now
  return [
    ['State', roleWords[d.state] ?? d.state],
    ['Kind', of.kind === 'managed' ? 'managed: a daemon restarts its workers' : 'attached: the pool requests no restarts'],
    ['Starting', of.starting ? `${until(of.starting, now)}, by the daemon ${short(of.daemon ?? '', 60)}` : null],
    ['Restarts', of.kind === 'managed' ? `${n.restarts ?? 0} of ${n.max_restarts} in succession` : null],
    ['Last restart', n.restart ? `number ${n.restart}, requested ${ago(of.asked, now)}` : null],
    ['Reason', of.reason ? short(of.reason, 300) : null],
    ['Back-off', of.after ? (later ? `a daemon gets it in ${span((Date.parse(of.after) - now) / 1000)}` : 'over: it waits for a daemon') : null],
  ]
}

// help is the text about a role that needs an operator, or ''.
export function help(d) {
  if (d.state === 'given-up') {
    return 'The pool requests no further restart, since none has led to a stable worker. Remove the reason, and reset the role: it has all of its restarts again. It is also reset when a worker joins, or a daemon starts.'
  }
  if (d.fields?.waiting && d.state === 'offline' && d.fields.kind !== 'managed') return 'A task is pending, and the role has no worker. Start one: dohost work.'
  if (d.fields?.waiting && d.state === 'requested') return 'A task is pending, and the pool has requested a restart. A daemon takes it: dohost daemon.'
  return ''
}

// worker is the row of a worker of a role.
export function worker(d, kind, now) {
  const of = d.fields ?? {}
  return {
    key: d.id, state: d.state,
    cells: [
      cell(of.conn ?? '', of.conn), cell(of.name ?? '', of.name), cell(kind), moment(until(of.until, now), of.until), cell(of.task ?? 'none'),
      moment(ago(of.joined, now), of.joined),
    ],
  }
}

// task is the row of a task.
export function task(d, now) {
  const { fields: of = {}, counts: n = {} } = d
  const notes = [of.progress && `progress: ${of.progress}`, of.reason && `reason: ${of.reason}`, n.late && `late results: ${n.late}`].filter(Boolean)
  return {
    key: d.id, state: d.state, can: d.can?.includes('retry') ? 'retry' : '', pick: d.id,
    cells: [
      cell(d.id), moment(`${d.state}, ${span(Math.max(0, (now - Date.parse(of.since)) / 1000))}`, of.since), moment(ago(of.created, now), of.created),
      cell(`${n.attempts ?? 0} of ${n.max_attempts}`), cell(of.conn ?? '', of.conn), cell(n.fence ? String(n.fence) : ''),
      moment(until(of.lease, now), of.lease), cell(notes.map((t) => short(t, 120)).join('; '), notes.join('\n')),
    ],
  }
}

// content is the content of one task: [[term, text]].
export function content(d) {
  const of = d.fields ?? {}
  return [['Text', of.text], ['Result', of.result], ['Late 1', of.late1], ['Late 2', of.late2], ['Late 3', of.late3], ['Key', of.key], ['Progress', of.progress], ['Reason', of.reason]]
    .filter(([, v]) => v).map(([term, v]) => [term, v.slice(0, 5000)])
}

// wrongPost is the error of a task that the operator has written, or ''.
export const wrongPost = (text) => (text.trim() === '' ? 'Enter the text of the task.' : '')

// postRequest returns the path and the body of a post to a role. A repeated request with the key posts nothing more.
export function postRequest(path, name, text, key) {
  return { path: `${path}/operate?${new URLSearchParams({ action: 'post', kind: 'pool-role', id: name })}`, body: JSON.stringify({ text, key }) }
}

// postError is the text about a post that has failed with an error, which has a status if the host has answered.
export function postError({ status = 0, message }) {
  if (status >= 400 && status < 500) return `The task is not posted: ${message}`
  return `The pool may have the task or not: ${message}. Post it again: with this text it is posted once.`
}

// queries returns the queries of a poll for the workers and the tasks of a role.
export function queries(name, view) {
  const of = (kind, more) => new URLSearchParams({ kind, limit: pageSize, field: `role:${name}`, ...more }).toString()
  const state = view.state ? { state: view.state } : {}
  const after = (list) => (list.at(-1) ? { after: list.at(-1) } : {})
  return { workers: of('pool-worker', after(view.workers)), tasks: of('pool-task', { ...state, ...after(view.tasks) }) }
}

const up = (state) => (state === 'busy' || state === 'reachable' ? 'reachable' : state)
const most = 5 // changes that are listed in a poll

// changes lists the events of the roles between two polls: [{kind, text}].
export function changes(before, now) {
  const old = new Map(before.map((d) => [d.id, d]))
  const list = []
  for (const d of now) {
    const was = old.get(d.id)
    if (!was) continue
    const fresh = (d.counts?.restart ?? 0) > (was.counts?.restart ?? 0)
    if (fresh) list.push({ kind: 'requested', text: `Role ${d.id}: restart ${d.counts.restart} requested: ${short(d.fields?.reason ?? '', 120)}` })
    else if (up(d.state) !== up(was.state)) list.push({ kind: d.state, text: `Role ${d.id} is ${roleWords[up(d.state)] ?? d.state}` })
  }
  return list.slice(0, most)
}
