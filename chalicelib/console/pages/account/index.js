// What belongs to a user rather than to a project: their access tokens and keys.
import { useSession } from "../../data/session.js";
import { Facts, Page, Section } from "../../kit/page.js";
import { html } from "../../kit/preact.js";
import { Ago } from "../../kit/time.js";
import { Keys } from "./keys.js";
import { Tokens } from "./tokens.js";

export default function Account() {
  const { user } = useSession();
  return html`<${Page} title="Your account">
    <${Section} title=${user.name}><${Facts} items=${[["Role on this server", user.role], ["E-mail", user.email], ["Since", html`<${Ago} at=${user.created_at} />`]]} /><//>
    ${user.token ? html`<${Section} title="Tokens and keys"><p>This page has an access token, which may not make or list tokens and keys. Sign in with your own token for that, or use <code>dstack token</code>.</p><//>` : html`<${Tokens} /><${Keys} />`}
  <//>`;
}
