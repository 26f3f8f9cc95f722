// The tables of a worker pool. A poll updates them without a change of the focus.
import { arrange } from './decisions.js'
import { short } from './decide.js'
import { by, el, newID, setText } from './dom.js'
import { list, note } from './panel.js'
import { changes, content, help, postError, postRequest, queries, role, roleFacts, task, taskStates, worker, wrongPost } from './pool.js'

const mostRoles = 256 // of a pool

// PoolView shows a pool. on has path(), look(), say(text).
export class PoolView {
  #host
  #on
  #tables
  #seen = null // {role, roles, workers, tasks} of the last poll
  #view = {}
  #content = 0 // counts the requests for the content of a task
  #draft = new Map() // roles that the text in the form was posted to, and the keys of these tasks: a repeated post has no further effect
  #posting = false

  constructor(host, on) {
    this.#host = host
    this.#on = on
    const pick = (name) => this.#select({ role: name })
    this.#tables = {
      roles: new Table(by('roles'), { pick, label: 'Show the role' }),
      workers: new Table(by('workers'), {}),
      tasks: new Table(by('tasks'), { pick: (id) => this.#open(id), label: 'Show the task', act: (id) => this.#retry('pool-task', id, `task ${id}`) }),
    }
    by('task-state').append(...taskStates.map(([value, text]) => new Option(text, value)))
    by('task-state').addEventListener('change', () => this.#select({ state: by('task-state').value, tasks: [] }))
    by('reset').addEventListener('click', () => this.#retry('pool-role', this.#seen.role, `role ${this.#seen.role}`))
    by('post').addEventListener('submit', (e) => {
      e.preventDefault()
      this.#post(by('post').dataset.role, by('post-text').value)
    })
    by('post-text').addEventListener('input', () => {
      this.#draft = new Map()
      this.#wrong('')
    })
    by('content-close').addEventListener('click', () => {
      by('content').hidden = true
      by('tasks-title').focus()
    })
    for (const of of ['workers', 'tasks']) {
      by(`${of}-next`).addEventListener('click', () => this.#select({ [of]: [...this.#view[of], this.#seen[of].next] }))
      by(`${of}-first`).addEventListener('click', () => this.#select({ [of]: [] }))
    }
    this.fresh()
  }

  // fresh begins another pool.
  fresh() {
    this.#seen = null
    this.#view = { role: '', state: '', workers: [], tasks: [] }
    by('task-state').value = ''
    by('post-text').value = ''
    this.#draft = new Map()
    this.#wrong('')
    this.#close()
    this.#alert('')
    by('role').hidden = true
    for (const t of Object.values(this.#tables)) t.render([])
    setText(by('pool-state'), 'Loading the pool')
  }

  #close() {
    this.#content++
    by('content').hidden = true
  }

  // select changes the view: the role, the state of the tasks, or the page of a list.
  #select(change) {
    if (change.role !== undefined && change.role !== this.#view.role) {
      change = { workers: [], tasks: [], ...change }
      this.#wrong('')
      this.#close()
    }
    this.#view = { ...this.#view, ...change }
    by('pool').setAttribute('aria-busy', 'true')
    this.#on.look()
  }

  // details gets a page of each list. ask gets the items of a query.
  async details(ask) {
    const { details: roles } = await ask(`kind=pool-role&limit=${mostRoles}`)
    const view = this.#view
    const name = (roles.find((d) => d.id === view.role) ?? roles[0])?.id ?? ''
    const q = queries(name, view)
    const none = { details: [] }
    const [workers, tasks] = name ? await Promise.all([ask(q.workers), ask(q.tasks)]) : [none, none]
    return { details: [], more: [], pool: { view, role: name, roles, workers, tasks } }
  }

  // seen takes the lists of a poll, and lists the events since the one before.
  seen(pool) {
    if (pool.view !== this.#view) return // the view has changed during the poll
    for (const c of this.#seen ? changes(this.#seen.roles, pool.roles) : []) {
      note(c.kind, c.text)
      this.#on.say(c.text)
    }
    this.#seen = pool
    by('pool').removeAttribute('aria-busy')
  }

  render(now) {
    const seen = this.#seen
    if (!seen) return
    const empty = 'The pool has no roles yet. dohost work joins one, dohost daemon declares one.'
    setText(by('pool-state'), seen.roles.length ? '' : empty)
    by('roles').hidden = seen.roles.length === 0
    const of = seen.roles.find((d) => d.id === seen.role)
    this.#tables.roles.render(seen.roles.map((d) => role(d, now)), seen.role)
    by('role').hidden = !of
    if (!of) return
    setText(by('role-title'), `Role ${of.id}`)
    list(by('role-facts'), roleFacts(of, now))
    setText(by('role-help'), help(of))
    by('reset').hidden = !of.can?.includes('retry')
    by('post').hidden = !of.can?.includes('post')
    by('post').dataset.role = of.id
    setText(by('post-send'), `Post to the role ${short(of.id, 60)}`)
    this.#tables.workers.render(seen.workers.details.map((d) => worker(d, of.fields?.kind ?? '', now)))
    this.#tables.tasks.render(seen.tasks.details.map((d) => task(d, now)))
    for (const name of ['workers', 'tasks']) this.#pager(name, seen[name])
  }

  #pager(name, { details, next }) {
    const page = this.#view[name].length
    by(name).hidden = details.length === 0
    by(`${name}-next`).hidden = !next
    by(`${name}-first`).hidden = page === 0
    const text = details.length === 0 ? `No ${name}${page ? ' on this page' : ''}.` : page || next ? `Page ${page + 1}` : ''
    setText(by(`${name}-page`), text)
  }

  #alert(text) {
    by('pool-error').hidden = text === ''
    setText(by('pool-error'), text)
  }

  #wrong(text) {
    by('post-error').hidden = text === ''
    setText(by('post-error'), text)
    by('post-text').toggleAttribute('aria-invalid', text !== '')
  }

  // post posts a task to a role. The text stays in the form until the pool has the task.
  async #post(name, text) {
    const wrong = wrongPost(text)
    this.#wrong(wrong)
    if (wrong) by('post-text').focus()
    if (wrong || this.#posting) return
    this.#posting = true
    by('post-send').setAttribute('aria-disabled', 'true')
    const draft = this.#draft
    if (!draft.has(name)) draft.set(name, newID('page-'))
    try {
      const { path, body } = postRequest(this.#on.path(), name, text, draft.get(name))
      const { done } = await this.#host.ask('POST', path, 15000, body)
      if (!done) throw Object.assign(new Error('the pool has no such role any more'), { status: 404 })
      const said = `A task is posted to the role ${short(name, 60)}`
      note('posted', said)
      this.#on.say(said)
      if (draft === this.#draft) {
        by('post-text').value = ''
        this.#draft = new Map()
      }
    } catch (err) {
      if (draft === this.#draft) this.#wrong(postError(err))
    } finally {
      this.#posting = false
      by('post-send').removeAttribute('aria-disabled')
    }
    this.#on.look()
  }

  async #retry(kind, id, name) {
    const path = `${this.#on.path()}/operate?${new URLSearchParams({ action: 'retry', kind, id })}`
    try {
      const { done } = await this.#host.ask('POST', path, 15000)
      this.#alert(done ? '' : `The ${name} has changed: there is nothing to reset.`)
      if (done) {
        const text = kind === 'pool-role' ? `The ${name} has all of its restarts again` : `The ${name} is pending again`
        note('retry', text)
        this.#on.say(text)
        if (kind === 'pool-role') by('role-title').focus() // the button disappears
      }
    } catch (err) {
      this.#alert(`The ${name} is not reset: ${err.message}`)
    }
    this.#on.look()
  }

  // open shows the content of a task, as it is now.
  async #open(id) {
    const n = ++this.#content
    try {
      const { details } = await this.#host.ask('GET', `${this.#on.path()}/details?${new URLSearchParams({ kind: 'pool-task', id })}`)
      if (n !== this.#content) return
      this.#alert(details.length ? '' : `The pool does not have the task ${id} any more.`)
      if (details.length === 0) return
      setText(by('content-title'), `Task ${id}`)
      by('content-text').replaceChildren(...content(details[0]).map(([term, text]) => el('div', {}, el('dt', {}, term), el('dd', {}, el('pre', { tabindex: 0 }, text)))))
      by('content').hidden = false
      by('content-title').focus()
    } catch (err) {
      this.#alert(`The task ${id} is not shown: ${err.message}`)
    }
  }
}

// Table is a table with a heading cell in each row. of has pick(key) for a button in that cell, and act(key) for one in the last cell.
class Table {
  #body
  #labels
  #of
  #rows = new Map()

  constructor(table, of) {
    this.#of = of
    this.#body = table.tBodies[0]
    this.#labels = Array.from(table.tHead.rows[0].cells, (c) => c.textContent)
  }

  render(rows, picked) {
    const keep = new Set(rows.map((r) => r.key))
    for (const [key, tr] of this.#rows) {
      if (keep.has(key)) continue
      tr.remove()
      this.#rows.delete(key)
    }
    for (const r of rows) {
      if (!this.#rows.has(r.key)) this.#rows.set(r.key, this.#make(r))
      this.#update(this.#rows.get(r.key), r, picked)
    }
    arrange(this.#body, rows.map((r) => this.#rows.get(r.key)))
  }

  #make(row) {
    const cells = row.cells.map((_, i) => (i === 0
      ? el('th', { scope: 'row', role: 'rowheader', 'data-label': this.#labels[0] }, this.#pick(row))
      : el('td', { role: 'cell', 'data-label': this.#labels[i] }, el('span'))))
    return el('tr', { role: 'row', tabindex: -1 }, ...cells)
  }

  #pick(row) {
    if (!row.pick) return el('span')
    return el('button', { type: 'button', 'aria-label': `${this.#of.label} ${row.cells[0].text}`, click: () => this.#of.pick(row.pick) })
  }

  #update(tr, row, picked) {
    tr.dataset.state = row.state
    if (picked !== undefined) tr.querySelector('button').setAttribute('aria-pressed', String(row.key === picked))
    row.cells.forEach(({ text, title }, i) => {
      const node = tr.cells[i].firstChild
      setText(node, text)
      if (node.title !== title) node.title = title
      tr.cells[i].toggleAttribute('data-empty', text === '' && !(i === row.cells.length - 1 && row.can))
    })
    const last = tr.cells[row.cells.length - 1]
    const has = last.querySelector('button')
    if (row.can && !has) last.append(el('button', { type: 'button', 'aria-label': `Retry the task ${row.cells[0].text}`, click: () => this.#of.act(row.key) }, 'Retry'))
    else if (!row.can && has) {
      if (document.activeElement === has) tr.focus()
      has.remove()
    }
  }
}
