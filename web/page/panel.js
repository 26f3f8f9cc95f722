// The object of the conversation: its state, the cost of its reply, and events.
import { by, el, setText } from './dom.js'
import { shortEpoch } from './objectpoll.js'

// duration is a time in seconds, in words.
export function duration(s) {
  if (s < 1) return `${Math.round(s * 1000)} ms`
  if (s < 90) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`
  if (s < 5400) return `${Math.round(s / 60)} min`
  return s < 129600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`
}

// list updates a description list: rows of [term, value], without those with the value null.
export function list(dl, rows) {
  const want = rows.filter(([, v]) => v !== null && v !== undefined)
  want.forEach(([term, value], i) => {
    let row = dl.children[i]
    if (!row) row = dl.appendChild(el('div', {}, el('dt'), el('dd')))
    setText(row.firstChild, term)
    setText(row.lastChild, String(value))
  })
  while (dl.children.length > want.length) dl.lastElementChild.remove()
}

function alarmText(o, now) {
  if (o.parked) return `parked: ${o.parked.reason}`
  if (!o.alarm) return 'none'
  const s = (new Date(o.alarm) - now) / 1000
  const when = s > 0.05 ? `in ${duration(s)}` : 'due'
  return o.attempt ? `${when}, after ${o.attempt} failed runs` : when
}

const pinText = (p) => (p.for_seconds ? `${p.why}, ${duration(p.for_seconds)}` : p.why)

// render shows the state of an object.
export function render(look, now) {
  const o = look.object
  const state = !look.reached ? 'gone' : !o ? 'unknown' : o.live ? 'live' : 'cold'
  const words = {
    gone: 'The host does not answer', unknown: look.error ?? 'unknown', live: 'In memory', cold: o?.durable ? 'Not in memory' : 'Does not exist yet',
  }
  by('state').dataset.state = by('object').dataset.state = state
  for (const button of document.querySelectorAll('.acts button')) button.setAttribute('aria-disabled', String(state === 'gone'))
  setText(by('state-text'), words[state])
  setText(by('epoch-short'), state === 'live' ? `epoch ${shortEpoch(o.epoch)}` : '')
  by('epoch-short').title = state === 'live' ? o.epoch : ''
  if (!o) return
  const details = look.details ?? []
  const open = (kind) => details.filter((d) => d.kind === kind && /^(pending|running|waiting)/.test(d.state ?? ''))
  const fibers = open('fiber')
  list(by('facts'), [
    ['Age', o.live ? duration(o.age_seconds ?? 0) : null],
    ['Idle', o.live && o.idle_seconds > 1 ? duration(o.idle_seconds) : null],
    ['Events', o.live ? o.events ?? 0 : null],
    ['Queued', o.queued || null],
    ['Kept by', o.live ? (o.pins ?? []).map(pinText).join('; ') || 'nothing' : null],
    ['Sockets', o.sockets ? (o.live ? o.sockets : `${o.sockets}, hibernating`) : 'none'],
    ['Alarm', alarmText(o, now)],
    ['Fibers', fibers.length ? fibers.map((d) => `${d.state} ${/^"([^"]*)"/.exec(d.text ?? '')?.[1] ?? ''}`.trim()).join(', ') : 'none'],
    ['Waiting', open('schedule').length + open('item').length || null],
    ['Faults', details.filter((d) => d.fault).map((d) => `${d.kind}: ${d.fault}`).join('; ') || null],
  ])
}

// renderCost shows the cost of a reply: the host's numbers of the request, and the page's own.
export function renderCost(request, seen) {
  const c = request?.counts
  by('cost-title').hidden = by('cost').hidden = !c && !seen
  if (!c && !seen) return
  const gap = seen?.gaps.length ? Math.max(...seen.gaps) : null
  list(by('cost'), [
    ['Reply', request ? { running: 'running', queued: 'queued', completed: 'complete', aborted: 'stopped', error: 'failed' }[request.state] ?? request.state : null],
    ['Handler started', c ? times(c.runs) : null],
    ['Recoveries', c ? c.recoveries : null],
    ['Without progress', c && c.idle > 1 ? `${c.idle} in a row` : null],
    ['Chunks', Math.max(c?.chunks ?? 0, seen?.chunks ?? 0) || null],
    ['Sent again', seen?.again ? `${seen.again} chunks, ${bytes(seen.bytes)}` : null],
    ['Longest gap', gap === null ? null : duration(gap / 1000)],
    ['Lost or repeated', seen ? (seen.broken ? 'yes' : 'none') : null],
  ])
}

const times = (n) => (n === 1 ? 'once' : n === 2 ? 'twice' : `${n} times`)
const bytes = (n) => (n < 2000 ? `${n} B` : `${(n / 1000).toFixed(1)} kB`)

const mostEvents = 60

// note adds an event, the newest first.
export function note(kind, text, at = new Date()) {
  const ol = by('history')
  ol.prepend(el('li', { 'data-kind': kind },
    el('time', { datetime: at.toISOString() }, at.toLocaleTimeString([], { hour12: false })), el('span', {}, text)))
  while (ol.children.length > mostEvents) ol.lastElementChild.remove()
}
