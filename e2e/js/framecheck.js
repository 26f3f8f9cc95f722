// Runs in the page before its own code: checks the painted content of every frame, and collects the errors. The text
// of each answer only grows; no answer disappears unless the conversation is cleared; and a reload keeps all of them.
window.seen = { frames: 0, changes: 0, wrong: [], cleared: false, texts: {} }

// Errors of the page's code, and content that its policy has blocked, are errors of the page.
addEventListener('error', (e) => seen.wrong.push(`error: ${e.message ?? e.target}`), true)
addEventListener('unhandledrejection', (e) => seen.wrong.push(`unhandled: ${e.reason}`))
addEventListener('securitypolicyviolation', (e) => seen.wrong.push(`blocked: ${e.violatedDirective} ${e.blockedURI}`))
console.error = (...args) => seen.wrong.push(`console: ${args.join(' ')}`)

const textOf = (article) => Array.from(article.querySelectorAll('.parts > .text'), (n) => n.textContent).join('\n')

function look() {
  requestAnimationFrame(look)
  seen.frames++
  const now = {}
  for (const article of document.querySelectorAll('article[data-role="assistant"]')) {
    const id = article.dataset.id
    if (id in now) seen.wrong.push(`${id} is there twice`)
    now[id] = textOf(article)
    const before = seen.texts[id] ?? ''
    if (now[id] === before) continue
    seen.changes++
    if (!now[id].startsWith(before)) seen.wrong.push(`${id} was ${JSON.stringify(before)} and is ${JSON.stringify(now[id])}`)
    const kept = sessionStorage.getItem('seen ' + id) ?? '' // before a reload
    if (now[id] && !now[id].startsWith(kept)) seen.wrong.push(`${id} was ${JSON.stringify(kept)} before, and is ${JSON.stringify(now[id])}`)
    sessionStorage.setItem('seen ' + id, now[id])
  }
  for (const id of Object.keys(seen.texts)) {
    if (!(id in now) && id !== '' && !seen.cleared) seen.wrong.push(`${id} has gone`)
  }
  seen.texts = now
}
requestAnimationFrame(look)

// until waits for a condition, and checks it in every frame.
window.until = (what, holds, ms = 15000) => new Promise((resolve, reject) => {
  const end = performance.now() + ms
  const poll = () => {
    const is = holds()
    if (is) return resolve(is)
    if (performance.now() > end) return reject(new Error(`${what}: not so in ${ms} ms; ${document.body.innerText.slice(0, 600)}`))
    requestAnimationFrame(poll)
  }
  poll()
})

window.the = (selector) => document.querySelector(selector)
window.answers = () => Array.from(document.querySelectorAll('article[data-role="assistant"]'), textOf)
window.words = () => (answers().at(-1) ?? '').split(' ').length
window.press = async (id) => {
  const button = await until(`#${id} can be pressed`, () => { const b = the('#' + id); return b && b.offsetParent && b })
  button.click()
}
window.type = (text) => {
  const box = the('#question')
  box.focus()
  box.value = text
  box.dispatchEvent(new Event('input'))
  box.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }))
}
window.idle = () => until('the answer ends', () => answers().length && the('#stop').hidden && !the('article[data-role="assistant"]:is([data-state="live"], [data-state="cut"])'))
