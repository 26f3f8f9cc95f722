// The connection with an agent: it reconnects by itself, resumes a reply, and passes its owner the frames in a useful
// order: the transcript first.
import { newID } from './dom.js'

// The pauses between two attempts to connect, in milliseconds. In a cluster another node has the agent about three seconds after its node has ended.
const firstPause = 50
const longestPause = 1000

// Host is the server of the page.
export class Host {
  #token = sessionStorage.getItem('dohost.token') ?? ''

  set token(t) {
    this.#token = t
    sessionStorage.setItem('dohost.token', t) // until the tab closes
  }

  get hasToken() {
    return this.#token !== ''
  }

  // ask sends a request, and throws an error: with a status if the host has answered.
  async ask(method, path, timeout = 8000, body = undefined) {
    const headers = this.#token ? { Authorization: 'Bearer ' + this.#token } : {}
    const res = await fetch(path, { method, headers, body, signal: AbortSignal.timeout(timeout), cache: 'no-store' })
    if (res.ok) return res.json()
    const text = await res.text()
    let message = text.trim()
    try {
      message = JSON.parse(text).message ?? message
    } catch {
      // it is not JSON
    }
    throw Object.assign(new Error(message || res.statusText), { status: res.status })
  }

  // facts fetches a description of the host. With the path of a socket it includes a ticket for that socket, if the host needs tokens.
  facts(path) {
    const query = path ? '?' + new URLSearchParams({ socket: new URL(path, location.origin).pathname }) : ''
    return this.ask('GET', '/page/host.json' + query, 4000)
  }
}

// Wire is a connection with an agent. on has facts(f), frame(f), state(name, detail): connecting, open, gone,
// denied, refused.
export class Wire {
  #host
  #path
  #on
  #id = newID('page-')
  #ws = null
  #closed = false
  #acked = new Set()
  #timer = 0
  #pause = firstPause

  constructor(host, path, on) {
    this.#host = host
    this.#path = path
    this.#on = on
    this.#connect()
  }

  close() {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#ws?.close()
  }

  // now tries immediately, if it waits.
  now() {
    if (this.#closed || this.#ws) return
    clearTimeout(this.#timer)
    this.#pause = firstPause
    this.#connect()
  }

  // send sends a frame, and returns whether there is a connection.
  send(frame) {
    if (this.#ws?.readyState !== WebSocket.OPEN) return false
    this.#ws.send(JSON.stringify(frame))
    return true
  }

  async #connect() {
    this.#on.state('connecting')
    let facts
    try {
      facts = await this.#host.facts(this.#path)
    } catch (err) {
      if (this.#closed) return
      if (err.status === 401) return this.#on.state('denied', err.message)
      this.#on.state('gone', err.message)
      return this.#later()
    }
    if (this.#closed) return
    this.#on.facts(facts)
    const query = new URLSearchParams({ _pk: this.#id })
    if (facts.ticket) query.set('ticket', facts.ticket)
    const ws = new WebSocket(location.origin.replace(/^http/, 'ws') + this.#path + '?' + query)
    this.#ws = ws
    this.#acked.clear()
    let early = [] // frames that arrived before the transcript
    ws.onopen = async () => {
      this.#pause = firstPause
      this.send({ type: 'cf_agent_stream_resume_request', probeId: this.#id })
      try {
        const messages = await this.#host.ask('GET', this.#path + '/get-messages', 30000)
        if (this.#ws !== ws) return
        this.#on.frame({ type: 'cf_agent_chat_messages', messages })
      } catch (err) {
        if (this.#ws === ws) ws.close() // it is tried again
        return
      }
      const list = early
      early = null
      for (const f of list) this.#take(f)
      this.#on.state('open')
    }
    ws.onmessage = (e) => {
      let f = null
      try {
        f = JSON.parse(e.data)
      } catch {
        // the agent's own frame
      }
      if (typeof f?.type !== 'string' || this.#ws !== ws) return
      if (early) early.push(f)
      else this.#take(f)
    }
    ws.onclose = (e) => {
      if (this.#ws !== ws) return
      this.#ws = null
      if (this.#closed) return
      if (e.code === 1008 || (e.code >= 4000 && e.code < 5000)) return this.#on.state('refused', e.reason || `closed with ${e.code}`)
      this.#on.state('away', e.reason, e.code)
      this.#later()
    }
  }

  #take(f) {
    if (f.type === 'cf_agent_stream_resuming' && !this.#acked.has(f.id)) {
      this.#acked.add(f.id) // the host sends it for a new connection and for a request
      this.send({ type: 'cf_agent_stream_resume_ack', id: f.id })
    }
    this.#on.frame(f)
  }

  #later() {
    const share = 0.8 + 0.2 * Math.random() // pages that were cut off together connect at different times
    this.#timer = setTimeout(() => this.#connect(), this.#pause * share)
    this.#pause = Math.min(this.#pause * 1.7, longestPause)
  }
}
