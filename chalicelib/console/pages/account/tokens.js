import { post } from "../../data/api.js";
import { useSession } from "../../data/session.js";
import { useLoaded } from "../../data/use_loaded.js";
import { Button } from "../../kit/button.js";
import { Code } from "../../kit/code.js";
import { Dialog } from "../../kit/dialog.js";
import { Empty } from "../../kit/empty.js";
import { FormDialog } from "../../kit/form_dialog.js";
import { html, useState } from "../../kit/preact.js";
import { DeleteButton, Resource, askAndDo, buttons } from "../../kit/resource.js";
import { Ago } from "../../kit/time.js";
import { money } from "../../lib/money.js";

/** @typedef {{id: string, name: string, expires_at: string, created_at: string, verbs: string[], projects: string[], dollars_a_day: number | null, spent_today: number | null}} Token */

const PATH = "/users/access_tokens";
/** @type {[string, string][]} */
const VERBS = [["run", "submit, stop and delete runs"], ["fleets", "fleets, volumes and gateways"], ["project", "members, secrets, backends, quotas"]];
/** @type {[string, string][]} */
const TIMES = [["86400", "a day"], ["604800", "a week"], ["2592000", "30 days"], ["7776000", "90 days"], ["31536000", "a year"]];

export function Tokens() {
  const tokens = useLoaded(() => post(`${PATH}/list`), []);
  const { projects } = useSession();
  const [adding, setAdding] = useState(false);
  const [made, setMade] = useState(/** @type {{name: string, token: string} | null} */ (null));
  const create = async (/** @type {any} */ { name, verbs, to, expires_in, dollars }) => {
    const limit = dollars === "" ? {} : { dollars_a_day: Number(dollars) };
    setMade(await post(`${PATH}/create`, { name: name.trim(), verbs: ["read", ...verbs], projects: to, expires_in: Number(expires_in), ...limit }));
    tokens.reload();
  };
  const columns = [
    { key: "name", title: "Name", width: 7, cell: (/** @type {Token} */ row) => html`<b>${row.name}</b>` },
    { key: "may", title: "May", least: 6, cell: (/** @type {Token} */ row) => `${row.verbs.join(", ")}${row.projects.length > 0 ? ` in ${row.projects.join(", ")}` : ""}` },
    { key: "dollars", title: "Dollars today", width: 9, wide: true, align: /** @type {const} */ ("right"), cell: (/** @type {Token} */ row) => (row.dollars_a_day === null ? html`<span class="soft">no limit</span>` : `${money(row.spent_today ?? 0)} of ${money(row.dollars_a_day)}`) },
    { key: "ends", title: "Ends", width: 6, cell: (/** @type {Token} */ row) => html`<${Ago} at=${row.expires_at} />` },
    buttons((/** @type {Token} */ row) => html`<${DeleteButton} label=${`Revoke the token ${row.name}`} onClick=${() => revoke(row.name, tokens.reload)} />`, 4),
  ];
  return html`<${Resource} title="Access tokens" loaded=${tokens} columns=${columns} keyOf=${(/** @type {Token} */ row) => row.id} note="For programs: they expire, may do less than you, and can be revoked by themselves."
      actions=${html`<${Button} small kind="primary" onClick=${() => setAdding(true)}>Make a token<//>`}
      empty=${html`<${Empty} title="No access tokens." next="Make one for each program that uses this server in your name." />`} />
    ${adding && html`<${FormDialog} title="Make an access token" action="Make it" onClose=${() => setAdding(false)} send=${create} fields=${[
      { key: "name", label: "Name", required: true, hint: "What it is for, such as ci." },
      { key: "verbs", label: "What it may do, besides reading", kind: "checks", options: VERBS, start: ["run"] },
      { key: "to", label: "In these projects", kind: "checks", options: projects.map((each) => each.name), hint: "None of them: in all of yours." },
      { key: "expires_in", label: "Ends after", kind: "select", options: TIMES, start: "2592000" },
      { key: "dollars", label: "Dollars a day", type: "number", min: 0.01, step: "0.01", hint: "What its runs may cost from 00:00 to 24:00 UTC. Empty: no limit." },
    ]} />`}
    ${made && html`<${Dialog} title=${`The token ${made.name}`} onClose=${() => setMade(null)} actions=${html`<${Button} kind="primary" onClick=${() => setMade(null)}>Done<//>`}>
      <p>Copy it now: it is shown only this once.</p><${Code} copy label="Token" text=${made.token} /><//>`}`;
}

/** @param {string} name @param {() => void} reload */
async function revoke(name, reload) {
  const question = { title: `Revoke the token ${name}?`, text: "Programs that use it are refused at once. Runs that were submitted with it go on.", action: "Revoke", danger: true };
  if (await askAndDo(question, () => post(`${PATH}/revoke`, { name }), `The token ${name} is revoked.`)) reload();
}
