// The operator's side of the page, next to the conversation.
import { Decisions } from './decisions.js'
import { by, setText } from './dom.js'
import { note, render, renderCost } from './panel.js'
import { changes, Watch } from './objectpoll.js'
import { PoolView } from './poolview.js'

const done = { fence: 'Evict', restart: 'Restart', crash: 'Crash' }

// Operator is the object's side of the page. talk has busy(), request() and cost(id) of the conversation, and say(text),
// which announces a text.
export class Operator {
  #host
  #talk
  #watch = null
  #facts = null
  #seen = null
  #epoch = ''
  #decisions
  #pool
  #isPool = false

  constructor(host, talk) {
    this.#host = host
    this.#talk = talk
    this.#decisions = new Decisions(host, {
      path: () => this.#watch.path, look: () => this.look(), decided: note, say: talk.say,
    })
    this.#pool = new PoolView(host, { path: () => this.#watch.path, look: () => this.look(), say: talk.say })
    for (const button of document.querySelectorAll('[data-mode]')) {
      button.addEventListener('click', () => this.#there() && this.#evict(button.dataset.mode))
    }
    by('kill').addEventListener('click', () => this.#there() && (this.#facts.supervised ? this.#kill() : by('sure').showModal()))
    by('sure').addEventListener('close', () => by('sure').returnValue === 'yes' && this.#kill())
    by('more').addEventListener('click', () => {
      const open = by('object').toggleAttribute('data-open')
      by('more').setAttribute('aria-expanded', String(open))
      setText(by('more'), open ? 'Close' : 'Details')
    })
    setInterval(() => this.#seen && !document.hidden && this.#render(), 250) // the alarm's countdown, and ages
  }

  #render() {
    render(this.#seen, Date.now())
    this.#decisions.render(this.#seen, Date.now())
    if (this.#isPool) this.#pool.render(Date.now())
  }

  // there reports whether the host answers.
  #there() {
    return by('object').dataset.state !== 'gone'
  }

  facts(f) {
    this.#facts = f
    by('object').hidden = !f.operator
    by('kill').hidden = !f.kill
  }

  // open selects another object, perhaps a pool.
  open(id, isPool) {
    this.#watch?.end()
    this.#seen = null
    this.#epoch = ''
    by('history').replaceChildren()
    this.#decisions.fresh()
    this.#isPool = isPool
    this.#pool.fresh()
    by('object').setAttribute('aria-label', `The object ${id.class}/${id.name}`)
    this.#watch = new Watch(this.#host, id, this.#talk.busy, (look) => this.#look(look), isPool ? (ask) => this.#pool.details(ask) : null)
    this.#names(id)
  }

  // names suggests existing objects.
  async #names(id) {
    try {
      const list = await this.#host.ask('GET', `/v1/objects?limit=50&class=${encodeURIComponent(id.class)}`)
      by('names').replaceChildren(...list.objects.map((o) => new Option(o.id.slice(id.class.length + 1))))
    } catch {
      // the page works without suggestions
    }
  }

  look() {
    this.#watch?.look()
  }

  #look(look) {
    for (const c of changes(this.#seen, look, this.#epoch)) note(c.kind, c.text)
    if (look.pool) this.#pool.seen(look.pool)
    if (look.object?.live) this.#epoch = look.object.epoch
    this.#seen = look.object || !this.#seen ? look : { ...this.#seen, ...look, object: this.#seen.object }
    this.#render()
    this.cost()
  }

  // cost shows the cost of the last reply.
  cost() {
    const id = this.#talk.request()
    const list = (this.#seen?.details ?? []).filter((d) => d.kind === 'request')
    renderCost(id ? list.find((d) => d.id === id) : list[0], id ? this.#talk.cost(id) : null)
  }

  happened(kind, text) {
    if (this.#facts?.operator) note(kind, text)
  }

  process() {
    this.happened('back', 'A new process answers')
  }

  async #evict(mode) {
    note(mode, `${done[mode]} was pressed`)
    try {
      const { evicted } = await this.#host.ask('POST', `${this.#watch.path}/evict?mode=${mode}`)
      if (!evicted) note('cold', 'The object was not in memory')
    } catch (err) {
      note('failed', `${done[mode]}: ${err.message}`)
    }
    this.look()
  }

  async #kill() {
    note('kill', 'Kill was pressed: SIGKILL')
    try {
      await this.#host.ask('POST', '/v1/kill')
    } catch (err) {
      if (err.status !== undefined) note('failed', `Kill: ${err.message}`)
    }
    this.look()
  }
}
