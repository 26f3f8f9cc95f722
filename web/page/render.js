// Text on the screen. A text that grows changes only the nodes that it grows in.
import { el } from './dom.js'
import { parse } from './markdown.js'

// paint shows a text in an element. final means that the text is complete.
export function paint(root, text, final) {
  const blocks = parse(text, final)
  blocks.forEach((b, i) => {
    let node = root.children[i]
    if (node?.dataset.kind !== b.kind) {
      const made = makeBlock(b)
      if (node) node.replaceWith(made)
      else root.append(made)
      node = made
    }
    fill(node, b)
  })
  while (root.children.length > blocks.length) root.lastElementChild.remove()
}

const tags = { p: 'p', h: 'h4', ul: 'ul', ol: 'ol', pre: 'pre' }

function makeBlock(b) {
  const node = el(tags[b.kind], { 'data-kind': b.kind })
  if (b.kind === 'ol' && b.start !== 1) node.setAttribute('start', b.start)
  if (b.kind === 'pre') node.tabIndex = 0 // it scrolls
  return node
}

function fill(node, b) {
  if (b.kind === 'pre') return grow(node, b.text)
  if (!b.items) return runs(node, b.inline)
  b.items.forEach((item, i) => runs(node.children[i] ?? node.appendChild(el('li')), item))
  while (node.children.length > b.items.length) node.lastElementChild.remove()
}

function runs(node, list) {
  list.forEach((r, i) => {
    const is = node.childNodes[i]
    if (is && kindOf(is) === r.kind && (r.kind !== 'link' || is.href === r.href)) grow(is, r.text)
    else if (is) is.replaceWith(makeRun(r))
    else node.append(makeRun(r))
  })
  while (node.childNodes.length > list.length) node.lastChild.remove()
}

const kindOf = (node) => (node.nodeType === Node.TEXT_NODE ? 'text' : { CODE: 'code', STRONG: 'strong', A: 'link' }[node.tagName])

function makeRun(r) {
  if (r.kind === 'text') return document.createTextNode(r.text)
  if (r.kind === 'link') return el('a', { href: r.href, rel: 'noreferrer noopener', target: '_blank' }, r.text)
  return el(r.kind, {}, r.text)
}

// grow sets a node's text, by appending if possible.
function grow(node, text) {
  const of = node.nodeType === Node.TEXT_NODE ? node : node.firstChild ?? node.appendChild(document.createTextNode(''))
  if (of.data === text) return
  if (text.startsWith(of.data)) of.appendData(text.slice(of.data.length))
  else of.data = text
}

// place finds the node of a position in an element's text: {node, offset}.
function place(root, at) {
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT)
  let last = null
  while (walk.nextNode()) {
    last = walk.currentNode
    if (at <= last.data.length) return { node: last, offset: at }
    at -= last.data.length
  }
  return last && { node: last, offset: last.data.length }
}

// markCuts marks the words where an incarnation has ended, without changing the text: list has {root, at}, a position
// in the text of an element.
export function markCuts(list) {
  if (!globalThis.Highlight || !CSS.highlights) return
  const marks = new Highlight()
  for (const { root, at } of list) {
    const text = root.textContent
    const begin = place(root, Math.max(0, text.slice(0, at).trimEnd().lastIndexOf(' ') + 1))
    const end = place(root, text.slice(0, at).trimEnd().length)
    if (!begin || !end) continue
    const range = new Range()
    range.setStart(begin.node, begin.offset)
    range.setEnd(end.node, end.offset)
    marks.add(range)
  }
  CSS.highlights.set('cut', marks)
}
