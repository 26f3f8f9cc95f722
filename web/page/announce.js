// What a screen reader is told of an answer: each sentence once, when it is whole.

// Announcer says sentences in a live region.
export class Announcer {
  #region
  #id = ''
  #said = 0

  constructor(region) {
    this.#region = region
  }

  // follow says what is new of the answer of an id. What is there when it first hears of it is not read again.
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

  // say says something.
  say(text) {
    const p = document.createElement('p')
    p.textContent = text
    this.#region.append(p)
    while (this.#region.children.length > 20) this.#region.firstChild.remove()
  }
}
