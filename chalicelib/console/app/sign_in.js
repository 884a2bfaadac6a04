// Signing in: as a page of its own, or as a dialog over the page that goes on afterwards.
import { Button } from "../kit/button.js";
import { Dialog } from "../kit/dialog.js";
import { CheckField, TextField } from "../kit/fields.js";
import { Failed } from "../kit/notice.js";
import { html, useState } from "../kit/preact.js";
import { keepsToken, signIn, signOut } from "../data/session.js";

/** @param {{onDone?: () => void, children?: any}} props */
function SignInForm({ children }) {
  const [text, setText] = useState("");
  const [keep, setKeep] = useState(keepsToken());
  const [error, setError] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!text.trim()) return setError({ detail: "Enter a token." });
    setBusy(true);
    try {
      await signIn(text.trim(), { keep });
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return html`<form class="sign-in" onSubmit=${submit}>
    <${Failed} error=${error} />
    <${TextField} label="Token" type="password" name="token" autocomplete="current-password" value=${text} onInput=${setText} autofocus
      hint="Yours, or an access token. The server prints its admin’s token when it starts for the first time." />
    <${CheckField} label="Keep me signed in in this tab" checked=${keep} onInput=${setKeep} />
    <div class="actions"><${Button} type="submit" kind="primary" busy=${busy}>Sign in</${Button}>${children}</div>
  </form>`;
}

export function SignInPage() {
  return html`<main class="door" id="main">
    <div class="door-box"><p class="brand">dstack</p><h1>Sign in</h1><${SignInForm} /></div>
  </main>`;
}

/** Over a page whose token the server refuses by now. */
export function SignInAgain() {
  return html`<${Dialog} title="Sign in again" fixed onClose=${() => {}}>
    <p>The server doesn’t accept your token any more: it has ended, or somebody has revoked it. What you were doing goes on afterwards.</p>
    <${SignInForm}><${Button} onClick=${signOut}>Sign out</${Button}></${SignInForm}>
  </${Dialog}>`;
}
