// Signing in: as a page of its own, or as a dialog over the page that goes on afterwards.
import { Button } from "../kit/button.js";
import { Dialog } from "../kit/dialog.js";
import { Loading } from "../kit/empty.js";
import { CheckField, TextField } from "../kit/fields.js";
import { Failed } from "../kit/notice.js";
import { html, useEffect, useState } from "../kit/preact.js";
import { useStore } from "../kit/use_store.js";
import { keepsToken, signIn, signOut } from "../data/session.js";
import { leaveFor, providers } from "../data/sign_on.js";
import { arriving, failedArrival } from "./arrive.js";

/** @param {{children?: any}} props */
function SignInForm({ children }) {
  const [text, setText] = useState("");
  const [keep, setKeep] = useState(keepsToken());
  const [error, setError] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const attempt = async (/** @type {() => Promise<any>} */ act) => {
    setBusy(true);
    setError(null);
    try {
      await act();
    } catch (failed) {
      setError(failed);
    }
    setBusy(false);
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (text.trim()) void attempt(() => signIn(text.trim(), { keep }));
    else setError({ detail: "Enter a token." });
  };
  return html`<form class="sign-in" onSubmit=${submit}>
    <${Failed} error=${error} />
    <${Providers} busy=${busy} onChoose=${(/** @type {string} */ name) => attempt(() => leaveFor(name))} />
    <${TextField} label="Token" type="password" name="token" autocomplete="current-password" value=${text} onInput=${setText} autofocus
      hint="Yours, or an access token. A server prints its admin’s token when it starts for the first time." />
    <${CheckField} label="Keep me signed in in this tab" checked=${keep} onInput=${setKeep} />
    <div class="actions"><${Button} type="submit" kind="primary" busy=${busy}>Sign in</${Button}>${children}</div>
    <p class="hint">Where you use the command line, <code>dstack console</code> opens this page signed in.</p>
  </form>`;
}

/** The organisation's accounts, where the server has any.
 * @param {{busy: boolean, onChoose: (name: string) => void}} props */
function Providers({ busy, onChoose }) {
  const [names, setNames] = useState(/** @type {string[]} */ ([]));
  useEffect(() => {
    providers().then(setNames, () => {}); // without them, a token signs in, too: and says what fails
  }, []);
  if (names.length === 0) return null;
  return html`<div class="stack">${names.map((name) => html`<${Button} key=${name} kind="primary" busy=${busy} onClick=${() => onChoose(name)}>Sign in with ${name}</${Button}>`)}
    <p class="or">or</p></div>`;
}

export function SignInPage() {
  const error = useStore(failedArrival);
  const busy = useStore(arriving);
  useEffect(() => {
    document.title = "Sign in · dstack";
  }, []);
  if (busy) return html`<main class="door" id="main"><${Loading} text="Signing in …" /></main>`;
  return html`<main class="door" id="main">
    <div class="door-box"><p class="brand">dstack</p><h1>Sign in</h1><${Failed} error=${error} /><${SignInForm} /></div>
  </main>`;
}

/** Over a page whose token the server refuses by now. */
export function SignInAgain() {
  return html`<${Dialog} title="Sign in again" fixed onClose=${() => {}}>
    <p>The server doesn’t accept your token any more: it has ended, or somebody has revoked it. What you were doing goes on afterwards.</p>
    <${SignInForm}><${Button} onClick=${signOut}>Sign out</${Button}></${SignInForm}>
  </${Dialog}>`;
}
