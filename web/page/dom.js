// Elements, without HTML: the words of a model are only ever the text of a node.

// el makes an element. Members of props that are functions are listeners; false and null set nothing.
export function el(tag, props, ...children) {
  const node = document.createElement(tag)
  for (const [name, value] of Object.entries(props ?? {})) {
    if (typeof value === 'function') node.addEventListener(name, value)
    else if (value === true) node.setAttribute(name, '')
    else if (value !== false && value != null) node.setAttribute(name, value)
  }
  node.append(...children.filter((c) => c != null && c !== false))
  return node
}

// setText changes a node's text, if it differs.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text
}

// by finds the one element with an id.
export const by = (id) => document.getElementById(id)

// newID makes a unique id. crypto.randomUUID is missing on pages without TLS.
export function newID(prefix) {
  const bytes = crypto.getRandomValues(new Uint8Array(12))
  return prefix + Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('')
}
