// The lists of tool calls, operations and approvals in the panel of an object, with the forms of decisions. A poll
// updates the lists without a change of the focus or of the fields of a form.
import { actions, incomplete, items, log, outcomes, pretty, request, short, waiting, wrongResult } from './decide.js'
import { by, el, newID, setText } from './dom.js'
import { duration } from './panel.js'

const few = 4 // ended items, or events, that a list has at first
const actorKey = 'dohost.actor' // in localStorage

// Decisions shows the items of an object. on has path(), say(text), decided(kind, text), look().
export class Decisions {
  #host
  #on
  #lists
  #log
  #said = new Set() // keys of waiting items that were announced

  constructor(host, on) {
    this.#host = host
    this.#on = on
    const decide = (...args) => this.#decide(...args)
    this.#lists = [['calls', 'call'], ['operations', 'operation']].map(([id, kind]) => ({ kind, list: new List(by(id), () => new Row(decide), on.say) }))
    this.#log = new List(by('approvals'), (event) => new LogLine(event), on.say)
  }

  // fresh begins another object.
  fresh() {
    for (const { list } of this.#lists) list.clear()
    this.#log.clear()
    this.#said.clear()
    this.render({}, 0)
  }

  // render shows the items of a poll.
  render(look, now) {
    const details = look.details ?? []
    let all = 0
    for (const { kind, list } of this.#lists) {
      const of = items(details, kind)
      const n = waiting(of)
      all += n
      list.render(of, now, look.more?.includes(kind), of.filter((i) => i.open).length)
      list.count(n ? (kind === 'call' ? `${n} to approve` : `${n} unknown`) : '')
      this.#announce(kind, of.slice(0, n))
    }
    this.#outcomes(outcomes(details))
    this.#log.render(log(details), now, look.more?.includes('approval'), 0)
    by('more').dataset.count = all || ''
  }

  // outcomes shows the counts of unknown outcomes, also without operations: their rows expire.
  #outcomes(texts) {
    const list = by('outcomes')
    if (texts.length > 0) by('operations').hidden = false
    list.hidden = texts.length === 0
    if (list.dataset.of === JSON.stringify(texts)) return
    list.dataset.of = JSON.stringify(texts)
    list.replaceChildren(...texts.map((text) => el('p', {}, text)))
  }

  // announce announces the waiting items of a kind that are new.
  #announce(kind, list) {
    const fresh = list.filter((i) => !this.#said.has(`${kind} ${i.key} ${i.since}`))
    for (const i of fresh) this.#said.add(`${kind} ${i.key} ${i.since}`)
    if (fresh.length === 0) return
    const name = fresh.length === 1 ? ` ${fresh[0].name}` : ''
    if (kind === 'call') this.#on.say(name ? `The tool call${name} waits for approval.` : `${fresh.length} tool calls wait for approval.`)
    else this.#on.say(name ? `The outcome of the operation${name} is unknown.` : `The outcomes of ${fresh.length} operations are unknown.`)
  }

  // decide sends a decision, and returns the error to show, or ''.
  async #decide(action, item, answer) {
    const of = this.#on.path()
    const { path, body } = request(of, action, item, answer)
    try {
      const { done } = await this.#host.ask('POST', path, 15000, body)
      if (!done) return 'The object does not have this item any more.'
    } catch (err) {
      if (err.status !== undefined) return err.message
      return 'The host has not answered, so the decision may or may not be recorded. The list shows it when the host answers again.'
    } finally {
      this.#on.look()
    }
    const text = `${item.name} ${actions[action].did}${answer.actor ? ` by ${answer.actor}` : ''}`
    this.#on.say(text)
    if (this.#on.path() === of) this.#on.decided(action, text)
    return ''
  }
}

// List is a section with a heading and a list of rows.
class List {
  #section
  #ol
  #make
  #say
  #rows = new Map()
  #all = false
  #button
  #again = []

  constructor(section, make, say) {
    this.#section = section
    this.#say = say
    this.#ol = section.querySelector('ol')
    this.#make = make
    this.#button = section.querySelector('button')
    this.#button.addEventListener('click', () => {
      this.#all = !this.#all
      this.render(...this.#again)
    })
  }

  clear() {
    this.#rows.clear()
    this.#ol.replaceChildren()
    this.#all = false
  }

  count(text) {
    setText(this.#section.querySelector('.count'), text)
  }

  // render shows a list: its first open items, and a few of the others, or all. A row with a form stays.
  render(list, now, more, open) {
    this.#again = [list, now, more, open]
    this.#section.hidden = list.length === 0
    const most = this.#all ? list.length : open + few
    const shown = list.filter((item, i) => i < most || this.#rows.get(item.key)?.busy)
    const keep = new Set(shown.map((i) => i.key))
    for (const [key, row] of this.#rows) {
      if (keep.has(key)) continue
      if (row.busy) this.#say('The object does not have the item of your decision any more.')
      row.root.remove()
      this.#rows.delete(key)
    }
    for (const item of shown) {
      if (!this.#rows.has(item.key)) this.#rows.set(item.key, this.#make(item))
      this.#rows.get(item.key).update(item, now)
    }
    arrange(this.#ol, shown.map((i) => this.#rows.get(i.key).root))
    this.#button.hidden = list.length <= open + few
    setText(this.#button, this.#all ? 'Show fewer' : `Show all ${list.length}`)
    this.#button.setAttribute('aria-expanded', String(this.#all))
    this.#section.querySelector('.rest').hidden = !more
  }
}

// arrange brings the children of an element into an order. It does not move the one that has the focus.
export function arrange(parent, nodes) {
  const at = nodes.findIndex((n) => n.contains(document.activeElement))
  const put = (list, place) => {
    for (const n of list) {
      if (n === place) place = place.nextElementSibling
      else parent.insertBefore(n, place)
    }
  }
  put(at < 0 ? nodes : nodes.slice(0, at), parent.firstElementChild)
  if (at >= 0) put(nodes.slice(at + 1), nodes[at].nextElementSibling)
}

// ago updates an element with the time since a moment.
function ago(node, at, now) {
  node.hidden = !at
  if (!at) return
  const s = Math.max(0, Math.round((now - at) / 1000))
  setText(node, s < 90 ? `${s} s` : duration(s))
  const iso = new Date(at).toISOString()
  if (node.dateTime === iso) return
  node.dateTime = iso
  node.title = `since ${new Date(at).toLocaleString()}`
}

// expiry is the text about the end of an item's time: to decide, or for the result of a call that runs elsewhere.
function expiry(item, now) {
  const what = item.state === 'external' ? 'for a result' : 'to decide'
  return item.expires > now ? `The time ${what} ends in ${duration((item.expires - now) / 1000)}` : `The time ${what} has ended`
}

// LogLine is an event of the audit log.
class LogLine {
  busy = false
  root

  constructor(e) {
    this.root = el('li', { 'data-kind': e.kind, title: e.title },
      el('time', { datetime: new Date(e.at).toISOString(), title: new Date(e.at).toLocaleString() }, new Date(e.at).toLocaleTimeString([], { hour12: false })),
      el('span', {}, e.text, e.reason && el('q', {}, e.reason)))
  }

  update() {} // the log is only appended to
}

// Row is a call or an operation, with its buttons and, while an operator decides, a form.
class Row {
  #decide
  #item
  #name = el('code')
  #word = el('span', { class: 'word' })
  #age = el('time')
  #text = el('code', { class: 'input' })
  #expires = el('p', { class: 'note', hidden: true })
  #lines = el('dl')
  #buttons = el('div', { class: 'choose' })
  #form = null

  constructor(decide) {
    this.#decide = decide
    this.root = el('li', { tabindex: -1 }, el('p', { class: 'item' }, this.#name, this.#word, this.#age), this.#text, this.#expires, this.#lines, this.#buttons)
  }

  // busy is set while the row has a form.
  get busy() {
    return this.#form !== null
  }

  update(item, now) {
    this.#item = item
    this.root.dataset.state = item.state
    this.root.toggleAttribute('data-waits', item.can.includes('approve') || item.can.includes('done'))
    setText(this.#name, item.name)
    setText(this.#word, item.word)
    ago(this.#age, item.since, now)
    const brief = short(item.text, item.open ? 240 : 80)
    setText(this.#text, brief)
    this.#text.hidden = brief === '' || this.busy // the form has all of it
    this.#expires.hidden = !item.expires
    if (item.expires) setText(this.#expires, expiry(item, now))
    const lines = JSON.stringify(item.lines)
    if (this.#lines.dataset.of !== lines) {
      this.#lines.dataset.of = lines
      this.#lines.replaceChildren(...item.lines.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', { title: value }, short(value, 120)))))
    }
    this.#choices(item)
    this.#form?.check(item)
  }

  // choices shows a button for each action of the item.
  #choices(item) {
    const can = item.can.join(' ')
    this.#buttons.hidden = this.busy || can === ''
    if (this.#buttons.dataset.can === can) return
    const held = this.#buttons.contains(document.activeElement)
    this.#buttons.dataset.can = can
    this.#buttons.replaceChildren(...item.can.map((action) => el('button', {
      type: 'button', class: actions[action].quiet ? 'quiet' : '', 'data-action': action, 'aria-label': `${actions[action].button}: ${item.name}`, click: () => this.#open(action),
    }, actions[action].button)))
    if (held) this.root.focus()
  }

  #open(action) {
    const form = new Form(action, this.#item, {
      send: (item, answer) => this.#decide(action, item, answer),
      close: (decided) => {
        form.root.remove()
        this.#form = null
        this.#choices(this.#item)
        const button = this.#buttons.querySelector(`[data-action="${action}"]`)
        if (decided || !button) this.root.focus()
        else button.focus()
      },
    })
    this.#form = form
    this.#buttons.hidden = this.#text.hidden = true
    this.root.append(form.root)
    form.focus()
  }
}

// Form asks for the facts of a decision about an item as it is when the form opens.
class Form {
  #item
  #on
  #action
  #actor = el('input', { name: 'actor', autocomplete: 'name', maxlength: 256, required: true })
  #reason = el('input', { name: 'reason', autocomplete: 'off', maxlength: 2048 })
  #result = el('textarea', { name: 'result', rows: 2, spellcheck: 'false', autocapitalize: 'off', placeholder: '"r_1"' })
  #alert = el('p', { class: 'error', role: 'alert', hidden: true })
  #submit
  #sending = false
  #ended = false

  constructor(action, item, on) {
    this.#action = action
    this.#item = item
    this.#on = on
    const of = actions[action]
    const title = newID('title-')
    if (action === 'fail') this.#result.placeholder = ''
    this.#actor.value = localStorage.getItem(actorKey) ?? ''
    this.#submit = el('button', { type: 'submit', class: 'main' }, of.button)
    const field = (text, input) => el('label', {}, el('span', {}, text), input)
    this.root = el('form', { class: 'decide', 'aria-labelledby': title, novalidate: true },
      el('h3', { id: title }, of.title), el('p', {}, of.says),
      item.text && el('pre', { tabindex: 0, 'aria-label': item.kind === 'call' ? 'Input' : 'Arguments' }, pretty(item.text)),
      incomplete(item.text) && el('p', { class: 'note' }, item.kind === 'call' ? 'The end is missing here. The conversation has the whole input.' : 'The end of the arguments is missing.'),
      of.field && field(of.field, this.#result), field('Your name', this.#actor), field('Reason', this.#reason), this.#alert,
      el('div', { class: 'row' }, el('button', { type: 'button', class: 'quiet', click: () => this.#close(false) }, 'Cancel'), this.#submit))
    this.root.addEventListener('submit', (e) => {
      e.preventDefault()
      this.#send()
    })
    this.root.addEventListener('input', () => this.#say('')) // check adds a warning again
    this.root.addEventListener('keydown', (e) => {
      if (e.key !== 'Escape') return
      e.stopPropagation() // it does not stop the reply
      this.#close(false)
    })
  }

  // focus selects the first field without a text.
  focus() {
    const first = actions[this.#action].field ? this.#result : this.#actor.value ? this.#reason : this.#actor
    first.focus()
    this.root.scrollIntoView({ block: 'nearest' })
  }

  // check warns if the item has changed since the form opened.
  check(item) {
    if (this.#sending || !this.#alert.hidden) return
    if (item.digest !== this.#item.digest) this.#say('The input of the call has changed since you opened this form, so the object will refuse the decision. Cancel, and read the new input.')
    else if (!item.can.includes(this.#action)) this.#say(`The item is ${item.word} now: this decision comes too late.`)
  }

  #say(text) {
    this.#alert.hidden = text === ''
    setText(this.#alert, text)
    if (text) this.root.lastElementChild.scrollIntoView({ block: 'nearest' })
  }

  #close(decided) {
    if (this.#ended) return
    this.#ended = true
    this.#on.close(decided)
  }

  async #send() {
    if (this.#sending) return
    const answer = { actor: this.#actor.value.trim(), reason: this.#reason.value.trim(), result: this.#result.value }
    const wrong = actions[this.#action].field ? wrongResult(answer.result, this.#action) : ''
    if (wrong || !answer.actor) {
      this.#say(wrong || 'Enter your name: the log keeps it.')
      const field = wrong ? this.#result : this.#actor
      field.focus()
      return
    }
    localStorage.setItem(actorKey, answer.actor)
    this.#say('')
    this.#sending = true
    this.#submit.setAttribute('aria-disabled', 'true')
    const refused = await this.#on.send(this.#item, answer)
    this.#sending = false
    this.#submit.removeAttribute('aria-disabled')
    if (refused) this.#say(refused)
    else this.#close(true)
  }
}
