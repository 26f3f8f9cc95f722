// The operator's view of an object: it is polled, which does not wake the object.

const soon = 350 // ms, while the object is busy
const seldom = 1500
const most = 300 // details in a poll
const decidable = ['call', 'operation', 'approval', 'outcomes'] // kinds that a poll always has

// Watch polls an object while the page is visible. on gets {reached, object, details, more, error}: more has the kinds with
// more items than the details have. list gets the details instead, if it is set: it gets a function that asks for the items of
// a query.
export class Watch {
  #host
  #path
  #on
  #busy
  #list
  #timer = 0
  #ended = false
  #looking = false
  #again = false // look was called during a poll, which may be too old for the caller

  constructor(host, id, busy, on, list = null) {
    this.#host = host
    this.#path = `/v1/objects/${encodeURIComponent(id.class)}/${encodeURIComponent(id.name)}`
    this.#busy = busy
    this.#on = on
    this.#list = list
    this.look()
  }

  get path() {
    return this.#path
  }

  end() {
    this.#ended = true
    clearTimeout(this.#timer)
  }

  // look polls now.
  async look() {
    clearTimeout(this.#timer)
    this.#again = this.#looking
    if (this.#ended || this.#looking) return
    if (!document.hidden) {
      this.#looking = true
      let seen
      try {
        const [object, details] = await Promise.all([this.#host.ask('GET', this.#path, 4000), this.#details()])
        seen = { reached: true, at: Date.now(), object, ...details }
      } catch (err) {
        seen = { reached: err.status !== undefined, at: Date.now(), error: err.message }
      }
      this.#looking = false
      if (this.#ended) return
      this.#on(seen)
    }
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.look(), this.#again ? 0 : this.#busy() ? soon : seldom)
  }

  // details gets the items of the object. Those that an operator decides about may come after many others, so they are
  // asked for by their kind if the first list is not complete.
  async #details() {
    if (this.#list) return this.#list((query) => this.#host.ask('GET', `${this.#path}/details?${query}`, 4000))
    const list = (query) => this.#host.ask('GET', `${this.#path}/details?limit=${most}${query}`, 4000)
    const first = await list('')
    if (!first.more) return { details: first.details, more: [] }
    const lists = await Promise.all(decidable.map((kind) => list(`&kind=${kind}`)))
    return {
      details: [...first.details.filter((d) => !decidable.includes(d.kind)), ...lists.flatMap((l) => l.details)],
      more: decidable.filter((_, i) => lists[i].more),
    }
  }
}

const requests = (look) => new Map((look?.details ?? []).filter((d) => d.kind === 'request').map((d) => [d.id, d]))

const ends = { completed: 'The reply is complete', aborted: 'The reply was stopped', error: 'The reply has failed', skipped: 'A request was skipped' }

// shortEpoch returns an epoch without the fork of its store, which only a restore or an import changes.
export const shortEpoch = (epoch) => epoch.split('.').slice(-2).join('.')

// changes lists the events between two polls: [{kind, text}]. epoch is the last one seen before.
export function changes(before, now, epoch) {
  if (!before) return []
  if (before.reached && !now.reached) return [{ kind: 'gone', text: 'The host does not answer' }]
  const list = []
  if (!before.reached && now.reached) list.push({ kind: 'back', text: 'The host answers again' })
  if (!now.object) return list
  const live = now.object.live
  if (live && epoch && now.object.epoch !== epoch) {
    list.push({ kind: 'epoch', text: `Epoch ${shortEpoch(epoch)} → ${shortEpoch(now.object.epoch)}` })
  } else if (live && before.object && !before.object.live) {
    list.push({ kind: 'live', text: `In memory, epoch ${shortEpoch(now.object.epoch)}` })
  }
  if (!live && before.object?.live) list.push({ kind: 'cold', text: `Epoch ${shortEpoch(before.object.epoch)} has ended` })
  const old = requests(before)
  for (const [id, d] of requests(now)) {
    const was = old.get(id)
    if (was && d.counts?.runs > was.counts?.runs && was.counts.runs > 0) {
      list.push({ kind: 'recovered', text: `Handler started again: run ${d.counts.runs}` })
    }
    if (was && was.state !== d.state && ends[d.state]) list.push({ kind: d.state, text: ends[d.state] })
  }
  return list
}
