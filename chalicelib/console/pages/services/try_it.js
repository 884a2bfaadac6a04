// A conversation with a service's model, and how programs talk to it.
import { token } from "../../data/token.js";
import { Button } from "../../kit/button.js";
import { Code } from "../../kit/code.js";
import { TextArea, TextField } from "../../kit/fields.js";
import { Notice } from "../../kit/notice.js";
import { Section } from "../../kit/page.js";
import { html, useRef, useState } from "../../kit/preact.js";
import { reader, refusalOf } from "../../lib/completions.js";
import { addressOf, number } from "../../lib/services.js";
import { snippets } from "../../lib/snippets.js";
import { BASE } from "./index.js";

/** @typedef {import("../../types").Service} Service */
/** @typedef {{role: "user" | "assistant" | "system", content: string}} Message */

/** @param {{service: Service, model: NonNullable<Service["model"]>}} props */
export function TryIt({ service, model }) {
  const url = addressOf(model.url, BASE);
  if (new URL(url).origin !== location.origin) {
    return html`<${Notice}><p>The model is at <code>${url}</code>, which is another host than this page’s. A page talks only to its own server; call the model from a program.</p></${Notice}><${Calls} service=${service} />`;
  }
  return html`<${Chat} url=${url} auth=${service.auth} model=${model.name} />`;
}

/** @param {{url: string, auth: boolean, model: string}} props */
function Chat({ url, auth, model }) {
  const [said, setSaid] = useState(/** @type {Message[]} */ ([]));
  const [text, setText] = useState(""), [system, setSystem] = useState("");
  const [busy, setBusy] = useState(false), [problem, setProblem] = useState(/** @type {string | null} */ (null));
  const [speed, setSpeed] = useState(/** @type {Speed | null} */ (null));
  const leaving = useRef(/** @type {AbortController | null} */ (null));
  const send = async () => {
    if (!text.trim() || busy) return;
    const asked = /** @type {Message[]} */ ([...said, { role: "user", content: text.trim() }]);
    setSaid([...asked, { role: "assistant", content: "" }]);
    setText("");
    setBusy(true);
    setProblem(null);
    setSpeed(null);
    leaving.current = new AbortController();
    const messages = system.trim() ? [{ role: "system", content: system.trim() }, ...asked] : asked;
    try {
      await complete(url, { auth, model, messages, signal: leaving.current.signal }, (content) => setSaid([...asked, { role: "assistant", content }]), setSpeed);
    } catch (error) {
      if (!leaving.current.signal.aborted) setProblem(/** @type {Error} */ (error).message);
      setSaid((now) => (now.at(-1)?.content === "" ? now.slice(0, -1) : now));
    }
    setBusy(false);
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void send();
  };
  return html`<div class="columns"><${Section} title=${`Talk to ${model}`} actions=${said.length > 0 && html`<${Button} small disabled=${busy} onClick=${() => setSaid([])}>Begin anew</${Button}>`}>
    <ol class="talk plain" aria-label="Conversation" aria-live="polite" aria-busy=${busy}>${said.map((message, at) => html`<li key=${at} class=${message.role}>
      <span class="talk-who">${message.role === "user" ? "You" : model}</span><p>${message.content || "…"}</p></li>`)}</ol>
    ${problem && html`<${Notice} kind="bad"><p>${problem}</p></${Notice}>`}
    <${TextArea} label="Message" rows=${3} value=${text} onInput=${setText} onKeyDown=${onKeyDown} hint="Enter sends it, Shift+Enter begins a new line." />
    <div class="actions">${busy ? html`<${Button} icon="stop" onClick=${() => leaving.current?.abort()}>Stop</${Button}>`
      : html`<${Button} kind="primary" disabled=${!text.trim()} onClick=${send}>Send</${Button}>`}
      ${speed && html`<span class="soft number" role="status">${wordsOf(speed)}</span>`}</div>
  </${Section}>
  <${Section} title="Settings" note="What you say goes to the service alone, as any other request of yours."><${TextField} label="System prompt" value=${system} onInput=${setSystem} /></${Section}></div>`;
}

/** @typedef {{first: number, tokens: number | null, seconds: number}} Speed times in seconds */
/** @param {Speed} speed */
const wordsOf = ({ first, tokens, seconds }) => [`first token after ${number(first)} s`, tokens !== null && seconds > 0 && `${number(tokens / seconds)} tokens/s`].filter(Boolean).join(", ");

/** @param {string} url @param {{auth: boolean, model: string, messages: any[], signal: AbortSignal}} asked @param {(content: string) => void} onText @param {(speed: Speed) => void} onSpeed */
async function complete(url, { auth, model, messages, signal }, onText, onSpeed) {
  const begun = performance.now();
  const headers = { "Content-Type": "application/json", ...(auth ? { Authorization: `Bearer ${token.get()}` } : {}) };
  const body = JSON.stringify({ model, messages, stream: true, stream_options: { include_usage: true } });
  const response = await fetch(`${url}/chat/completions`, { method: "POST", headers, body, signal, credentials: "same-origin", cache: "no-store" });
  if (!response.ok) throw new Error(refusalOf(response.status, await response.text()));
  const stream = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader(), decoder = new TextDecoder(), read = reader();
  let content = "", first = 0, tokens = /** @type {number | null} */ (null);
  for (;;) {
    const { done, value } = await stream.read();
    for (const piece of read(done ? "\n" : decoder.decode(value, { stream: true }))) {
      if (piece.error) throw new Error(piece.error);
      if (piece.text && !content) first = (performance.now() - begun) / 1000;
      content += piece.text;
      tokens = piece.usage?.completion_tokens ?? tokens;
    }
    onText(content);
    if (done) break;
  }
  onSpeed({ first, tokens, seconds: (performance.now() - begun) / 1000 - first });
}

/** @param {{service: Service}} props */
export function Calls({ service }) {
  const door = { url: addressOf(service.url, BASE), auth: service.auth, model: service.model && { name: service.model.name, url: addressOf(service.model.url, BASE) } };
  return html`<div class="stack">${service.auth && html`<p class="soft">Callers need a token of a member of the project, or one for services: <code>dstack token create</code>.</p>`}
    ${snippets(door).map((snippet) => html`<${Section} key=${snippet.key} title=${snippet.title}><${Code} text=${snippet.text} copy label=${`${snippet.title} example`} /></${Section}>`)}</div>`;
}
