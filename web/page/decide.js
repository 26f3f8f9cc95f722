// The items of an object that an operator decides about: tool calls, operations, and the log of approvals. Its
// functions are pure.

const wordsOfCall = {
  pending: 'pending', approval: 'waits for approval', client: 'waits for a client', external: 'runs elsewhere', running: 'running', completed: 'completed',
  failed: 'failed', denied: 'denied', expired: 'expired', unknown: 'outcome unknown',
}

const ended = new Set(['completed', 'failed', 'denied', 'expired'])

// actions are the decisions by their action: the button, the question of the form, the consequence, and the report.
export const actions = {
  approve: {
    button: 'Approve', title: 'Approve this call?', quiet: false, did: 'approved',
    says: 'The call runs with the input below. The audit log of the object keeps your name and the reason.',
  },
  deny: {
    button: 'Deny', title: 'Deny this call?', quiet: true, did: 'denied',
    says: 'The call does not run, and the model gets a refusal. The audit log of the object keeps your name and the reason.',
  },
  done: {
    button: 'It took effect', title: 'Did this operation take effect?', quiet: false, did: 'recorded as completed', field: 'Result, as JSON',
    says: 'The ledger records the operation as completed, with your result. No further call is made: a handler that asks for the operation again gets the result. The log of the host keeps your name and the reason.',
  },
  'not-done': {
    button: 'It had no effect', title: 'Did this operation have no effect?', quiet: true, did: 'recorded as failed',
    says: 'The ledger records the operation as failed, without an effect. A handler that asks for it again makes another call: if the first one can still take effect, it happens twice. The log of the host keeps your name and the reason.',
  },
  complete: {
    button: 'Enter the result', title: 'Has this call taken effect?', quiet: true, did: 'recorded as completed', field: 'Result, as JSON',
    says: 'The model receives your result, and the reply continues. A later result of the other party is discarded. The audit log of the object keeps your name and the reason.',
  },
  fail: {
    button: 'It had no effect', title: 'Has this call failed without an effect?', quiet: true, did: 'recorded as failed', field: 'Error, for the model',
    says: 'The model receives your text as the error of the call, and the reply continues. A later result of the other party is discarded. The audit log of the object keeps your name and the reason.',
  },
}

// describe returns an item for the screen: {key, kind, id, unique, digest, name, text, state, word, since, expires, lines, can, open}.
function describe(d, key) {
  const of = d.fields ?? {}
  const call = d.kind === 'call'
  const can = (d.can ?? []).filter((a) => a in actions)
  const word = call ? (d.state === 'pending' && can.includes('deny') ? 'approved' : wordsOfCall[d.state] ?? d.state) : d.state === 'unknown' ? 'outcome unknown' : d.state
  const lines = [['Id', call ? '' : d.id], ['Scope', of.scope], ['Asks', of.asks], ['Progress', of.progress], ['Error', of.error], ['Result', of.result], ['Fault', d.fault]].filter(([, v]) => v)
  return {
    key, kind: d.kind, id: d.id, unique: can.includes('complete') ? of.key : '', digest: d.digest ?? '', name: (call ? of.tool : of.kind) || d.id, text: (call ? of.input : of.args) ?? '',
    state: d.state ?? '', word: word ?? '', since: Date.parse(of.since) || 0, expires: Date.parse(of.expires) || 0, lines, can,
    open: can.length > 0 || !ended.has(d.state),
  }
}

// rank orders items: those that wait for an operator, those that have not ended, those that have.
const rank = (i) => (i.can.includes('approve') || i.can.includes('done') ? 0 : i.open ? 1 : 2)

// items returns the calls or the operations among details: those that wait for an operator first, the oldest first; then
// the other open ones; then the ended ones, the newest first.
export function items(details, kind) {
  const seen = new Map() // two messages may have calls with the same id
  const list = details.filter((d) => d.kind === kind).map((d) => {
    const n = (seen.get(d.id) ?? 0) + 1
    seen.set(d.id, n)
    return describe(d, n === 1 ? d.id : `${d.id}#${n}`)
  })
  return list.sort((a, b) => rank(a) - rank(b) || (rank(a) === 2 ? b.since - a.since : a.since - b.since))
}

// waiting counts the items that wait for an operator.
export const waiting = (list) => list.filter((i) => rank(i) === 0).length

// outcomes returns the counts of unknown outcomes of each kind of operations, in words.
export function outcomes(details) {
  return details.filter((d) => d.kind === 'outcomes').map((d) => {
    const { unknown = 0, done = 0, not_done: notDone = 0 } = d.counts ?? {}
    const all = done + notDone
    const rate = all ? `${all} resolved, ${notDone} without an effect: ${Math.round((100 * notDone) / all)} % false unknowns` : 'none resolved'
    return `${short(d.id, 60)}${d.fields?.policy ? ` (${d.fields.policy})` : ''}: ${unknown} unknown so far, ${rate}`
  })
}

const events = {
  requested: 'asked for approval', approved: 'approved', denied: 'denied', expired: 'not approved in time', completed: 'completed', failed: 'ended with an error',
}

// log returns the audit log of approvals, the newest event first: [{key, kind, at, text, reason}].
export function log(details) {
  return details.filter((d) => d.kind === 'approval').map((d) => {
    const of = d.fields ?? {}
    const text = `${of.tool || 'call'} ${events[d.state] ?? d.state}${of.actor ? ` by ${of.actor}` : ''}${of.late ? ', too late: no effect' : ''}`
    return { key: d.id, kind: d.state, at: Date.parse(of.time) || 0, text, reason: of.reason ?? '', title: `call ${of.call}` }
  }).sort((a, b) => Number(b.key) - Number(a.key))
}

// plain returns a text with its invisible characters as escapes: some of them change the order of the letters on the screen.
const plain = (text) => text.replace(/(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`)

// short returns a text in one line of at most n characters.
export function short(text, n) {
  const line = plain(text.replace(/\s+/g, ' '))
  return line.length > n ? line.slice(0, n - 1) + '…' : line
}

// pretty returns JSON with line breaks, also if its end is missing. It does not parse the text, so each number and each name
// stays as the model or the program wrote it.
export function pretty(text) {
  const out = []
  let depth = 0
  let last = ''
  const line = () => '\n' + '  '.repeat(Math.max(0, Math.min(depth, 12))) // a deep text stays small
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"?|[{}[\],:]|[^"{}[\],:\s]+/gs)) {
    const closes = token === '}' || token === ']'
    if (closes) depth--
    if (last === ',' || (closes ? last !== '{' && last !== '[' : last === '{' || last === '[')) out.push(line())
    out.push(token === ':' ? ': ' : token)
    if (token === '{' || token === '[') depth++
    last = token
  }
  return plain(out.join('')) + (depth > 0 ? '…' : '')
}

// incomplete reports whether the end of an input or of arguments is missing: the object keeps 4 KiB of each.
export function incomplete(text) {
  try {
    JSON.parse(text)
    return false
  } catch {
    return text !== ''
  }
}

// request returns the path and the body of a decision about an item, with the result as the operator has written it.
export function request(path, action, item, answer) {
  const query = new URLSearchParams({ action, kind: item.kind, id: item.unique || item.id })
  for (const [name, value] of [['digest', item.digest], ['actor', answer.actor], ['reason', answer.reason]]) {
    if (value) query.set(name, value)
  }
  return { path: `${path}/operate?${query}`, body: bodyOf(action, answer.result) }
}

const bodyOf = (action, result) => (!actions[action].field ? undefined : action === 'fail' ? JSON.stringify(result.trim()) : result)

// wrongResult returns the error of a result that the operator has written, or ''.
export function wrongResult(text, action) {
  if (action === 'fail') return text.trim() === '' ? 'Enter the text of the error.' : ''
  if (text.trim() === '') return 'Enter the result, as JSON. A text is in quotes: "r_1".'
  try {
    JSON.parse(text)
    return ''
  } catch (err) {
    return `The result is not JSON: ${err.message}. A text is in quotes: "r_1".`
  }
}
