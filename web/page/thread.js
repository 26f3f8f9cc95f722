// The conversation on the screen: the newest messages. It changes only the messages that have changed.
import { isTool } from './chunks.js'
import { el, setText } from './dom.js'
import { paint } from './render.js'

// windowSize is the number of messages on the screen at first, and of those that a reader adds each time.
const windowSize = 60

// Thread shows a conversation in an element. It calls act(kind, ...) for a reader's actions.
export class Thread {
  #items
  #earlier
  #act
  #nodes = new Map() // by key of the item
  #from = 0 // the first one on the screen
  #last = []
  #again = []

  constructor(items, earlier, act) {
    this.#items = items
    this.#earlier = earlier
    this.#act = act
    earlier.addEventListener('click', () => {
      this.#from = Math.max(0, this.#from - windowSize)
      const before = items.scrollHeight
      this.render(...this.#again)
      items.parentElement.scrollTop += items.scrollHeight - before
    })
  }

  // fresh begins another conversation.
  fresh() {
    this.#from = 0
    this.#last = []
    this.#nodes.clear()
    this.#items.replaceChildren()
  }

  // render shows the items that talk.shown has made; notes has a line for a message, by its id.
  render(list, notes, cut) {
    const grown = list.length - this.#last.length
    if (grown < 0 || grown > windowSize) this.#from = Math.max(0, list.length - windowSize) // otherwise all stay
    this.#last = list
    this.#again = [list, notes, cut]
    const hidden = this.#from
    this.#earlier.hidden = hidden === 0
    setText(this.#earlier, `Show earlier messages (${hidden})`)
    const keep = new Set()
    let place = this.#items.firstChild
    for (const item of list.slice(hidden)) {
      const key = item.message.id || 'reply'
      if (keep.has(key)) continue // a transcript should not have two of an id
      keep.add(key)
      let node = this.#nodes.get(key)
      if (!node) this.#nodes.set(key, (node = new Item(item.message, this.#act)))
      node.update(item, notes.get(key), cut)
      if (node.root === place) place = place.nextSibling
      else this.#items.insertBefore(node.root, place)
    }
    for (const [key, node] of this.#nodes) {
      if (keep.has(key)) continue
      node.root.remove()
      this.#nodes.delete(key)
    }
  }

  // root is the element of a message, if it is on the screen.
  root(id) {
    return this.#nodes.get(id)?.root
  }
}

const names = { user: 'You', assistant: 'Assistant', system: 'System' }

// Item is a message on the screen.
class Item {
  #parts = [] // {of, live, node}
  #body = el('div', { class: 'parts' })
  #foot = el('p', { class: 'foot', hidden: true })
  #act
  #seen = null

  constructor(message, act) {
    this.#act = act
    const who = names[message.role] ?? 'Unknown'
    this.root = el('article', { class: 'message', 'data-role': message.role ?? '', 'data-id': message.id },
      el('h3', {}, who), this.#body, this.#foot)
  }

  update(item, note, cut) {
    const state = item.refused ? 'refused' : item.waiting ? 'waiting' : item.live ? (cut ? 'cut' : 'live') : ''
    if (this.root.dataset.state !== state) this.root.dataset.state = state
    const foot = item.refused ? `Not accepted: ${item.refused}` : item.waiting ? 'Waiting for the server' : note ?? ''
    this.#foot.hidden = foot === ''
    setText(this.#foot, foot)
    if (this.#seen === item.message && !item.live === !this.wasLive) return
    this.#seen = item.message
    this.wasLive = item.live
    const shown = item.message.parts.filter((p) => p && typeof p.type === 'string' && p.type !== 'step-start')
    shown.forEach((p, i) => this.#part(i, p, item.live))
    for (const gone of this.#parts.splice(shown.length)) gone.node.remove()
  }

  #part(i, part, live) {
    const old = this.#parts[i]
    if (old && old.live === live && (old.of === part || JSON.stringify(old.of) === JSON.stringify(part))) {
      old.of = part
      return
    }
    let node = old?.of.type === part.type ? old.node : null
    const made = makePart(part, node, live, this.#act)
    if (old) {
      if (made !== old.node) old.node.replaceWith(made)
    } else this.#body.append(made)
    this.#parts[i] = { of: part, live, node: made }
  }
}

// makePart makes the element of a part, or updates the existing one.
function makePart(p, node, live, act) {
  if (p.type === 'text') {
    node ??= el('div', { class: 'text' })
    paint(node, longText(String(p.text ?? '')), !(live && p.state === 'streaming'))
    return node
  }
  if (p.type === 'reasoning') {
    node ??= el('details', { class: 'thought' }, el('summary', {}, 'Thoughts'), el('div'))
    paint(node.lastChild, longText(String(p.text ?? '')), !(live && p.state === 'streaming'))
    return node
  }
  if (isTool(p)) return toolPart(p, act)
  if (p.type === 'source-document' || p.type === 'source-url') {
    const name = p.title || p.filename || p.url || p.sourceId
    return el('p', { class: 'source' }, el('span', {}, 'Source'), ' ', p.type === 'source-url' ? link(p.url, name) : String(name))
  }
  if (p.type === 'file') {
    return el('p', { class: 'source' }, el('span', {}, 'File'), ' ', `${p.filename ?? ''} ${p.mediaType ?? ''}`.trim())
  }
  return el('details', { class: 'other' }, el('summary', {}, p.type), el('pre', {}, json(p.data ?? p)))
}

function link(url, text) {
  if (!/^https?:\/\//.test(String(url))) return String(text)
  return el('a', { href: url, rel: 'noreferrer noopener', target: '_blank' }, String(text))
}

const maxShown = 4000 // characters of a tool's input or output
const maxText = 100000 // of a text: beyond it the page would be too slow

const longText = (text) => (text.length > maxText ? text.slice(0, maxText) : text)

function json(v) {
  const text = typeof v === 'string' ? v : JSON.stringify(v, null, 1) ?? ''
  return text.length > maxShown ? text.slice(0, maxShown) + '…' : text
}

const toolStates = {
  'input-streaming': 'is being called', 'input-available': 'runs', 'approval-requested': 'needs your approval',
  'approval-responded': 'approved or denied', 'output-available': 'done', 'output-error': 'failed', 'output-denied': 'denied',
}

function toolPart(p, act) {
  const name = p.type === 'dynamic-tool' ? p.toolName : p.type.slice('tool-'.length)
  const node = el('section', { class: 'tool', 'data-state': p.state, 'aria-label': `Tool ${name}` },
    el('p', { class: 'call' }, el('code', {}, String(name)), el('span', {}, toolStates[p.state] ?? String(p.state))))
  const pane = (what, v) => v !== undefined && v !== null && node.append(
    el('details', {}, el('summary', {}, what), el('pre', {}, json(v))))
  pane('Input', p.input ?? p.rawInput)
  pane('Output', p.output)
  if (p.errorText) node.append(el('p', { class: 'error' }, String(p.errorText)))
  if (p.state === 'approval-requested') {
    const answer = (approved) => () => act('approve', p.toolCallId, approved)
    node.append(el('p', { class: 'row' },
      el('button', { type: 'button', click: answer(true) }, 'Approve'),
      el('button', { type: 'button', class: 'quiet', click: answer(false) }, 'Deny')))
  }
  return node
}
