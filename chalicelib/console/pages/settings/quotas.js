import { get, send } from "../../data/api.js";
import { useSession } from "../../data/session.js";
import { useLoaded } from "../../data/use_loaded.js";
import { Button } from "../../kit/button.js";
import { Loading } from "../../kit/empty.js";
import { FormDialog } from "../../kit/form_dialog.js";
import { Failed } from "../../kit/notice.js";
import { Section } from "../../kit/page.js";
import { html, useState } from "../../kit/preact.js";
import { Table } from "../../kit/table.js";
import { toast } from "../../kit/toast.js";
import { money } from "../../lib/money.js";

/** @typedef {import("../../types").Quota} Quota */
/** @typedef {{key: string, who: string, limits: Quota["limits"], used: Quota["used"] | null, path: string, editable: boolean}} Row */

/** @param {{project: string}} props */
export function Quotas({ project }) {
  const { can } = useSession(project);
  const path = `/projects/${encodeURIComponent(project)}/quota`;
  const { value, error, reload } = useLoaded(() => get(path), [path]);
  const [edited, setEdited] = useState(/** @type {Row | null} */ (null));
  const [adding, setAdding] = useState(false);
  if (error) return html`<${Failed} error=${error} retry=${reload} />`;
  if (!value) return html`<${Loading} />`;
  const admin = can("administer", project);
  const rows = rowsOf(value, path, can("server", project), admin);
  const columns = [
    { key: "who", title: "For", cell: (/** @type {Row} */ row) => html`<b>${row.who}</b>` },
    { key: "gpus", title: "GPUs", width: 8, align: /** @type {const} */ ("right"), cell: (/** @type {Row} */ row) => part(row.used?.gpus, row.limits.gpus, String) },
    { key: "jobs", title: "Jobs", width: 8, align: /** @type {const} */ ("right"), cell: (/** @type {Row} */ row) => part(row.used?.jobs, row.limits.jobs, String) },
    { key: "usd", title: "Dollars today", width: 11, align: /** @type {const} */ ("right"), cell: (/** @type {Row} */ row) => part(row.used?.usd_today, row.limits.usd_per_day, money) },
    { key: "actions", title: html`<span class="unseen">Actions</span>`, align: /** @type {const} */ ("right"), width: 6, cell: (/** @type {Row} */ row) => row.editable && html`<${Button} small onClick=${() => setEdited(row)}>Change<//>` },
  ];
  const save = async (/** @type {string} */ to, /** @type {any} */ values) => {
    await send("PUT", to, limitsOf(values));
    toast("The quota is saved.");
    reload();
  };
  return html`<${Section} title="Quotas" flush note="What may run at once, and what a day may cost. Runs over a limit wait, and say so." actions=${admin && html`<${Button} small onClick=${() => setAdding(true)}>Limit a user<//>`}>
      <${Table} label="Quotas" columns=${columns} rows=${rows} keyOf=${(/** @type {Row} */ row) => row.key} /><//>
    ${edited && html`<${FormDialog} title=${`Limits for ${edited.who}`} action="Save" onClose=${() => setEdited(null)} send=${(/** @type {any} */ values) => save(edited.path, values)} fields=${fields(edited.limits)} />`}
    ${adding && html`<${FormDialog} title="Limit a user" action="Save" onClose=${() => setAdding(false)} send=${(/** @type {any} */ { user, ...values }) => save(`${path}/users/${encodeURIComponent(user.trim())}`, values)}
      fields=${[{ key: "user", label: "User", required: true }, ...fields({ gpus: null, jobs: null, usd_per_day: null })]} />`}`;
}

/** @param {Quota} quota @param {string} path @param {boolean} server @param {boolean} admin @returns {Row[]} */
function rowsOf(quota, path, server, admin) {
  return [
    { key: "project", who: "The project", limits: quota.limits, used: quota.used, path, editable: server },
    { key: "each", who: "Each user", limits: quota.each_user, used: null, path: `${path}/each-user`, editable: admin },
    ...quota.users.map((each) => ({ key: `user/${each.user}`, who: each.user, limits: each.limits, used: each.used, path: `${path}/users/${encodeURIComponent(each.user)}`, editable: admin })),
  ];
}

/** "3 of 8"; a dash is no limit. @param {number | null | undefined} used @param {number | null} limit @param {(value: number) => string} text */
function part(used, limit, text) {
  const known = used !== null && used !== undefined;
  if (limit === null) return known && used > 0 ? html`${text(used)}<span class="soft">, no limit</span>` : html`<span class="soft">no limit</span>`;
  return known ? html`<span class=${used >= limit ? "spent" : ""}>${text(used)}</span> <span class="soft">of ${text(limit)}</span>` : html`<span class="soft">up to</span> ${text(limit)}`;
}

/** @param {Quota["limits"]} limits */
const fields = (limits) => [
  { key: "gpus", label: "GPUs at once", type: "number", min: 0, start: limits.gpus ?? "", hint: "Empty: no limit." },
  { key: "jobs", label: "Jobs at once", type: "number", min: 0, start: limits.jobs ?? "" },
  { key: "usd_per_day", label: "Dollars a day", type: "number", min: 0, step: "0.01", start: limits.usd_per_day ?? "" },
];

/** @param {Record<string, any>} values */
const limitsOf = (values) => Object.fromEntries(["gpus", "jobs", "usd_per_day"].map((key) => [key, values[key] === "" ? null : Number(values[key])]));
