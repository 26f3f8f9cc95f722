// Assembles a message while it streams: the same chunks always make the same message. The functions do not change
// their arguments.

// begin continues a message, or starts a new one.
export function begin(message) {
  return { message: message ?? { id: '', role: 'assistant', parts: [] }, open: {}, next: 0 }
}

// ranks order the states of a tool call, which never goes back.
const ranks = {
  'input-streaming': 1, 'input-available': 2, 'approval-requested': 3, 'approval-responded': 4,
  'output-available': 6, 'output-error': 6, 'output-denied': 6,
}

export const isTool = (p) => p.type === 'dynamic-tool' || p.type.startsWith('tool-')

const withPart = (acc, at, part) => {
  const parts = acc.message.parts.slice()
  parts[at] = part
  return { ...acc, message: { ...acc.message, parts } }
}

const push = (acc, part) => withPart(acc, acc.message.parts.length, part)

// add adds a chunk. An unknown chunk changes nothing.
export function add(acc, c) {
  const type = String(c?.type ?? '')
  const grows = /^(text|reasoning)-(start|delta|end)$/.exec(type)
  if (grows) return addText(acc, grows[1], grows[2], c)
  if (type.startsWith('tool-')) return addTool(acc, c)
  if (type.startsWith('data-')) return c.transient ? acc : addData(acc, c)
  switch (type) {
    case 'start':
      return c.messageId ? { ...acc, message: { ...acc.message, id: c.messageId } } : acc
    case 'start-step':
      return push(acc, { type: 'step-start' })
    case 'finish-step':
      return Object.keys(acc.open).reduce(end, acc)
    case 'file':
    case 'source-url':
    case 'source-document':
      return push(acc, { ...c })
  }
  return acc
}

function addText(acc, kind, step, c) {
  const key = kind + ' ' + c.id
  if (acc.open[key] === undefined) {
    if (step === 'end') return acc
    const at = acc.message.parts.length
    acc = push({ ...acc, open: { ...acc.open, [key]: at } }, { type: kind, text: '', state: 'streaming' })
  }
  const at = acc.open[key]
  if (step === 'end') return end(acc, key)
  if (step === 'start') return acc
  const part = acc.message.parts[at]
  return withPart(acc, at, { ...part, text: part.text + String(c.delta ?? '') })
}

function end(acc, key) {
  const at = acc.open[key]
  const { [key]: _, ...open } = acc.open
  return { ...withPart(acc, at, { ...acc.message.parts[at], state: 'done' }), open }
}

function addTool(acc, c) {
  const step = toolStep(c)
  if (!step || !c.toolCallId) return acc
  const at = acc.message.parts.findIndex((p) => isTool(p) && p.toolCallId === c.toolCallId)
  if (at < 0) {
    if (!c.toolName) return acc
    const type = c.dynamic ? { type: 'dynamic-tool', toolName: c.toolName } : { type: 'tool-' + c.toolName }
    return push(acc, { ...type, toolCallId: c.toolCallId, ...step })
  }
  const part = acc.message.parts[at]
  if (ranks[step.state] < ranks[part.state] || (ranks[step.state] === ranks[part.state] && !part.preliminary)) return acc
  return withPart(acc, at, { ...part, ...step })
}

function toolStep(c) {
  switch (c.type) {
    case 'tool-input-start':
      return { state: 'input-streaming' }
    case 'tool-input-available':
      return { state: 'input-available', input: c.input }
    case 'tool-input-error':
      return { state: 'output-error', input: c.input, errorText: c.errorText }
    case 'tool-approval-request':
      return { state: 'approval-requested', approval: { id: c.approvalId } }
    case 'tool-output-available':
      return { state: 'output-available', output: c.output, preliminary: c.preliminary }
    case 'tool-output-error':
      return { state: 'output-error', errorText: c.errorText }
    case 'tool-output-denied':
      return { state: 'output-denied' }
  }
  return null
}

function addData(acc, c) {
  const at = acc.message.parts.findIndex((p) => c.id !== undefined && p.type === c.type && p.id === c.id)
  return withPart(acc, at < 0 ? acc.message.parts.length : at, { type: c.type, id: c.id, data: c.data })
}
