// Everybody on this server, for its admins.
import { setQuery } from "../../app/router.js";
import { all, post, send } from "../../data/api.js";
import { useSession } from "../../data/session.js";
import { useLoaded } from "../../data/use_loaded.js";
import { Button } from "../../kit/button.js";
import { Code } from "../../kit/code.js";
import { Dialog } from "../../kit/dialog.js";
import { Empty, Loading } from "../../kit/empty.js";
import { SearchField } from "../../kit/fields.js";
import { FormDialog } from "../../kit/form_dialog.js";
import { Menu } from "../../kit/menu.js";
import { Failed } from "../../kit/notice.js";
import { Page } from "../../kit/page.js";
import { html, useState } from "../../kit/preact.js";
import { askAndDo, buttons } from "../../kit/resource.js";
import { Status } from "../../kit/status.js";
import { Table } from "../../kit/table.js";
import { Ago } from "../../kit/time.js";
import { toast } from "../../kit/toast.js";
import { sortOf, sortText } from "../../lib/sorting.js";

/** @typedef {import("../../types").User} User */
/** @typedef {{name: string, token: string}} Shown */

const ROLES = [["user", "user"], ["admin", "admin of the server"]];
/** @param {string} name */
const pathOf = (name) => `/users/${encodeURIComponent(name)}`;

/** @param {import("../../types").PageProps} props */
export default function Users({ query }) {
  const { can, user: me } = useSession();
  const users = useLoaded(() => all("/users"), []);
  const [form, setForm] = useState(/** @type {"add" | User | null} */ (null));
  const [shown, setShown] = useState(/** @type {Shown | null} */ (null));
  const admin = can("people"), deletes = can("server");
  const text = (query.q ?? "").toLowerCase();
  const rows = (users.value ?? []).filter((user) => `${user.name} ${user.email ?? ""} ${user.role}`.toLowerCase().includes(text));
  const add = async (/** @type {any} */ { name, role, email }) => {
    const made = await send("POST", "/users", { name: name.trim(), role, email: email.trim() || null });
    users.reload();
    setShown({ name: made.name, token: made.token });
  };
  const change = async (/** @type {User} */ user, /** @type {any} */ { role, email }) => {
    await send("PATCH", pathOf(user.name), { role, email: email.trim() || null });
    toast(`${user.name} is changed.`);
    users.reload();
  };
  const columns = [
    { key: "name", title: "Name", value: (/** @type {User} */ user) => user.name, cell: (/** @type {User} */ user) => html`<b>${user.name}</b>${user.name === me.name && html` <span class="soft">you</span>`}` },
    { key: "role", title: "Role", width: 8, value: (/** @type {User} */ user) => user.role },
    { key: "status", title: "Status", width: 9, wide: true, value: (/** @type {User} */ user) => (user.active ? "active" : "inactive"), cell: (/** @type {User} */ user) => html`<${Status} value=${user.active ? "active" : "stopped"} text=${user.active ? "active" : "inactive"} />` },
    { key: "email", title: "E-mail", wide: true, value: (/** @type {User} */ user) => user.email, cell: (/** @type {User} */ user) => user.email ?? html`<span class="soft">–</span>` },
    { key: "created", title: "Since", width: 7, wide: true, value: (/** @type {User} */ user) => Date.parse(user.created_at), cell: (/** @type {User} */ user) => html`<${Ago} at=${user.created_at} />` },
    ...(admin || deletes ? [buttons((/** @type {User} */ user) => html`<${Menu} title="" label=${`What to do with ${user.name}`} icon="more" kind="plain small" items=${menuOf(user, me, admin, deletes, { onEdit: setForm, onToken: setShown, reload: users.reload })} />`, 4)] : []),
  ];
  return html`<${Page} title="Users" actions=${admin && html`<${Button} kind="primary" icon="launch" onClick=${() => setForm("add")}>Add a user<//>`}>
    ${users.error ? html`<${Failed} error=${users.error} retry=${users.reload} />` : users.value === null ? html`<${Loading} />` : html`<div>
      <div class="bar"><${SearchField} label="Filter users" placeholder="A part of a name, an address or a role" value=${query.q ?? ""} onInput=${(/** @type {string} */ q) => setQuery({ q })} /></div>
      <${Table} label="Users" tall columns=${columns} rows=${rows} keyOf=${(/** @type {User} */ user) => user.id} sort=${sortOf(query.sort, { key: "name", down: false })}
        onSort=${(/** @type {any} */ sort) => setQuery({ sort: sortText(sort) })} empty=${html`<${Empty} title="Nobody has these letters." />`} /></div>`}
    ${form === "add" && html`<${FormDialog} title="Add a user" action="Add" onClose=${() => setForm(null)} send=${add} fields=${[{ key: "name", label: "Name", required: true }, ...fields()]} />`}
    ${form && form !== "add" && html`<${FormDialog} title=${`Change ${form.name}`} action="Save" onClose=${() => setForm(null)} send=${(/** @type {any} */ values) => change(form, values)} fields=${fields(form)} />`}
    ${shown && html`<${Dialog} title=${`The token of ${shown.name}`} onClose=${() => setShown(null)} actions=${html`<${Button} kind="primary" onClick=${() => setShown(null)}>Done<//>`}>
      <p>Hand it to ${shown.name} now: it is shown only this once. Whoever has it is ${shown.name}.</p><${Code} copy label="Token" text=${shown.token} /><//>`}
  <//>`;
}

/** @param {User} [user] */
const fields = (user) => [
  { key: "role", label: "Role on this server", kind: /** @type {const} */ ("select"), options: /** @type {[string, string][]} */ (ROLES), start: user?.role ?? "user" },
  { key: "email", label: "E-mail", type: "email", start: user?.email ?? "" },
];

/** @param {User} user @param {User} me @param {boolean} admin @param {boolean} deletes @param {{onEdit: (user: User) => void, onToken: (shown: Shown) => void, reload: () => void}} act */
function menuOf(user, me, admin, deletes, { onEdit, onToken, reload }) {
  const other = user.name !== me.name;
  const after = (/** @type {Promise<boolean>} */ done) => done.then((yes) => yes && reload());
  const renew = async () => {
    const made = await post("/users/refresh_token", { username: user.name });
    onToken({ name: user.name, token: made.creds.token });
  };
  return [
    ...(admin ? [{ title: "Change", icon: "settings", onSelect: () => onEdit(user) }] : []),
    ...(admin && other ? [
      { title: "New token", icon: "key", onSelect: () => void askAndDo({ title: `Give ${user.name} a new token?`, text: "The old one, and all sign-ons of theirs, end at once.", action: "Give a new one", danger: true }, renew, `${user.name} has a new token.`) },
      { title: user.active ? "Deactivate" : "Activate", icon: user.active ? "stop" : "check", onSelect: () => void after(askAndDo({ title: `${user.active ? "Deactivate" : "Activate"} ${user.name}?`, text: user.active ? "Their tokens are refused until they are active again. Runs go on." : "Their tokens work again.", action: user.active ? "Deactivate" : "Activate", danger: user.active }, () => send("PATCH", pathOf(user.name), { active: !user.active }), `${user.name} is ${user.active ? "inactive" : "active"}.`)) },
    ] : []),
    ...(deletes && other ? [
      { title: "Delete", icon: "trash", danger: true, onSelect: () => void after(askAndDo({ title: `Delete ${user.name}?`, text: "Their tokens and keys go, and their name stays in events and costs.", action: "Delete", danger: true }, () => send("DELETE", pathOf(user.name)), `${user.name} is deleted.`)) },
    ] : []),
  ];
}
