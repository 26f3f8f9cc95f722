// Announces an answer to screen readers: each sentence once, when it is complete.

// Announcer puts sentences into a live region.
export class Announcer {
  #region
  #id = ''
  #said = 0

  constructor(region) {
    this.#region = region
  }

  // follow announces the new text of the answer with an id. It skips a long text of its first call with that id.
  follow(id, text, final) {
    if (id !== this.#id) {
      this.#id = id
      this.#said = text.length > 200 ? text.length : 0
    }
    const rest = text.slice(this.#said)
    const ends = [...rest.matchAll(/[.!?:]\s|\n/g)]
    const upTo = final ? rest.length : ends.length ? ends.at(-1).index + 1 : 0
    const sentence = rest.slice(0, upTo).trim()
    this.#said += upTo
    if (sentence) this.say(sentence)
  }

  // say announces a text.
  say(text) {
    const p = document.createElement('p')
    p.textContent = text
    this.#region.append(p)
    while (this.#region.children.length > 20) this.#region.firstChild.remove()
  }
}
