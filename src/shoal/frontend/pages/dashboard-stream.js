// The one stream of a page: server-sent events over fetch, which can send the key as a header. It comes back by itself.

const FIRST_PAUSE = 1; // s, doubled up to
const LONGEST_PAUSE = 8;

export class Stream {
  /** `on` hears of events by name, and of the link: `live`, `gone` (with the seconds until the next try), `locked`. */
  constructor(on) {
    this.on = on;
    this.key = "";
    this.query = "";
    this.turn = 0;
  }

  headers() {
    return this.key ? { Authorization: `Bearer ${this.key}` } : {};
  }

  /** Begins anew, looking at this model; what ran before is over. */
  open(name = "", version = "") {
    this.query = name ? `?${new URLSearchParams({ model: name, version })}` : "";
    this.abort?.abort();
    this.run(++this.turn);
  }

  async run(turn) {
    let pause = FIRST_PAUSE;
    while (turn === this.turn) {
      this.abort = new AbortController();
      try {
        const answer = await fetch(`/dashboard/events${this.query}`, { headers: this.headers(), signal: this.abort.signal, cache: "no-store" });
        if (!answer.ok) {
          const { message } = await answer.json().catch(() => ({ message: `status ${answer.status}` }));
          if (answer.status === 401 || answer.status === 403) return this.on.locked(answer.status, message);
          throw new Error(message);
        }
        for await (const { event, data } of eventsOf(answer.body)) {
          if (turn !== this.turn) return;
          pause = FIRST_PAUSE;
          if (event === "hello") this.on.live();
          this.on[event]?.(data);
        }
      } catch (error) {
        if (turn !== this.turn) return;
        this.reason = error instanceof TypeError ? "" : error.message;
      }
      if (turn !== this.turn) return;
      this.on.gone(pause, this.reason);
      await new Promise((resolve) => setTimeout(resolve, 1000 * pause));
      pause = Math.min(2 * pause, LONGEST_PAUSE);
    }
  }

  /** Asks for something to be done: the server's sentence, or an error with its message. */
  async order(verb, fields) {
    let answer;
    try {
      answer = await fetch(`/dashboard/orders/${verb}`, {
        method: "POST",
        headers: { ...this.headers(), "Content-Type": "application/json" },
        body: JSON.stringify(fields),
      });
    } catch {
      throw new Error("The server does not answer.");
    }
    const said = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(said.message ?? `status ${answer.status}`);
    return said.status;
  }
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const [, event, data] = /^event: (.*)\ndata: (.*)$/s.exec(block) ?? [];
      if (event) yield { event, data: JSON.parse(data) };
    }
  }
}
