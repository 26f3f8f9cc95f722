// A small part of Markdown: paragraphs, headings, lists, code, strong, links.
//
// An answer arrives word by word, so the end of a text may still change its meaning. parse holds back the part that is
// not decided. So the painted part of a growing text never shrinks and never changes. A mark that opens an element
// opens it for good: without a closing mark, it ends with its block.

// Matches a last line that may still become a mark, such as the beginning of a heading. The line is trimmed first.
const undecided = /^(?:#{1,6}|[-*+]|\d{1,3}[.)]?|`{1,2}|```.*)?$/s
// After one blank these patterns accept any text, so that no match backtracks: a line may be long and blank.
const heading = /^\s{0,3}#{1,6}\s(.*)$/s
const bullet = /^\s*[-*+]\s(.*)$/s
const numbered = /^\s*(\d{1,3})[.)]\s(.*)$/s
const fence = /^\s*```/

// parse makes blocks of a text: {kind: p, h, ul, ol, pre; inline or items or text}. final means that the text is
// complete.
export function parse(text, final) {
  const blocks = []
  const lines = text.split('\n')
  let open = null // the block that the next line may continue
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i]
    const last = i === lines.length - 1 && !final
    if (open?.kind === 'pre') {
      if (fence.test(line)) {
        if (!last || line.trim() === '```') open = null
      } else if (!(last && /^\s*`{0,2}$/.test(line))) {
        open.text += (open.begun ? '\n' : '') + line
        open.begun = true
      }
      continue
    }
    if (last && undecided.test(line.trim())) break
    const m = heading.exec(line) ?? bullet.exec(line) ?? numbered.exec(line)
    if (fence.test(line)) open = push(blocks, { kind: 'pre', text: '', begun: false })
    else if (line.trim() === '') open = null
    else if (heading.test(line)) {
      push(blocks, { kind: 'h', source: m[1].trimStart() })
      open = null
    } else if (bullet.test(line)) open = item(blocks, open, 'ul', m[1].trimStart())
    else if (numbered.test(line)) open = item(blocks, open, 'ol', m[2].trimStart(), Number(m[1]))
    else if (open) add(open, ' ' + line.trim())
    else open = push(blocks, { kind: 'p', source: line.trimStart() })
  }
  return blocks.map((b, i) => finish(b, final || i < blocks.length - 1))
}

function push(blocks, b) {
  blocks.push(b)
  return b
}

function item(blocks, open, kind, source, start) {
  const list = open?.kind === kind ? open : push(blocks, { kind, items: [], start })
  list.items.push(source)
  return list
}

function add(block, text) {
  if (block.items) block.items[block.items.length - 1] += text
  else block.source += text
}

function finish(b, complete) {
  switch (b.kind) {
    case 'pre':
      return { kind: 'pre', text: b.text }
    case 'ul':
    case 'ol':
      return { kind: b.kind, start: b.start, items: b.items.map((s, i) => inline(s, complete || i < b.items.length - 1)) }
  }
  return { kind: b.kind, inline: inline(b.source, complete) }
}

const wholeLink = /^\[([^[\]]{0,200})\]\(([^()\s]{0,500})\)/
const halfLink = /^\[[^[\]]{0,200}(?:\](?:\([^()\s]{0,500})?)?$/
const bareURL = /^https?:\/\/[^\s<>"'`()[\]*]+/
const plain = /^(?:[^`*[h]|h(?!ttps?:\/\/))+/

// inline splits a block's text into runs: {kind: text, code, strong, link; text, href}.
export function inline(source, complete) {
  const runs = []
  let strong = false
  let rest = source
  const say = (kind, text, href) => {
    const before = runs.at(-1)
    if (text === '') return
    if (before?.kind === kind && kind !== 'link') before.text += text
    else runs.push(href ? { kind, text, href } : { kind, text })
  }
  const words = (text) => say(strong ? 'strong' : 'text', text)
  while (rest !== '') {
    let m
    if (rest[0] === '`') {
      const end = rest.indexOf('`', 1)
      say('code', rest.slice(1, end < 0 ? rest.length : end))
      rest = end < 0 ? '' : rest.slice(end + 1)
    } else if (!complete && (rest === '*' || rest === '**' || halfLink.test(rest))) {
      break
    } else if (rest.startsWith('**') && (strong || /^\*\*\S/.test(rest))) {
      strong = !strong
      rest = rest.slice(2)
    } else if ((m = wholeLink.exec(rest))) {
      if (/^(?:https?:\/\/|mailto:)/.test(m[2])) say('link', m[1], m[2])
      else words(m[1])
      rest = rest.slice(m[0].length)
    } else if ((m = bareURL.exec(rest))) {
      say('link', m[0], m[0])
      rest = rest.slice(m[0].length)
    } else {
      m = plain.exec(rest) ?? [rest[0]]
      words(m[0])
      rest = rest.slice(m[0].length)
    }
  }
  return runs
}

// textOf is the painted text of blocks.
export function textOf(blocks) {
  const of = (runs) => runs.map((r) => r.text).join('')
  return blocks.map((b) => (b.kind === 'pre' ? b.text : b.items ? b.items.map(of).join('') : of(b.inline))).join('')
}
