// The page's own account of a reply: its interruptions, and their silences.

// Costs keeps an account for each request that streamed on this page.
export class Costs {
  #of = new Map()

  // get is the account of a request, or nothing.
  get(id) {
    return this.#of.get(id)
  }

  // chunk counts a chunk of a reply, and returns the silence that it ends, in ms.
  chunk(id, frame) {
    let b = this.#of.get(id)
    if (!b) this.#of.set(id, (b = { chunks: 0, again: 0, bytes: 0, cuts: 0, gaps: [], cutAt: 0, broken: false, fresh: frame.replay }))
    if (typeof frame.seq === 'number') b.chunks = Math.max(b.chunks, frame.seq + 1)
    if (frame.replay) {
      if (!b.fresh) {
        b.again++
        b.bytes += frame.body.length
      }
      return 0
    }
    b.fresh = false
    if (!b.cutAt) return 0
    const gap = performance.now() - b.cutAt
    b.cutAt = 0
    b.gaps.push(gap)
    return gap
  }

  // cut counts a connection that ended during a reply.
  cut(id) {
    const b = this.#of.get(id)
    if (!b || b.cutAt) return false
    b.cuts++
    b.cutAt = performance.now()
    return true
  }

  // grew checks the painted text of a reply before and after: text only grows.
  grew(id, before, after) {
    const b = this.#of.get(id)
    if (b && !after.startsWith(before)) b.broken = true
  }

  // line is the line below the message.
  line(id) {
    const b = this.#of.get(id)
    if (!b?.cuts) return ''
    const how = b.cuts === 1 ? 'Cut off in mid-sentence' : `Cut off in mid-sentence ${b.cuts} times`
    if (b.cutAt) return how + ': it will continue'
    return `${how}, continued ${b.gaps.map((g) => `${(g / 1000).toFixed(2)} s`).join(' and ')} later`
  }
}
