// One fleet: what it has and costs, its machines, what happened, and its configuration.
import { go, link } from "../../app/router.js";
import { get, send } from "../../data/api.js";
import { refresh, useCollection, useItem } from "../../data/live.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { Code } from "../../kit/code.js";
import { confirm } from "../../kit/dialog.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Money } from "../../kit/money.js";
import { Failed, Notice } from "../../kit/notice.js";
import { Facts, Page } from "../../kit/page.js";
import { html, useEffect, useState } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";
import { Tabs } from "../../kit/tabs.js";
import { Words } from "../../kit/words.js";
import { Ago } from "../../kit/time.js";
import { toast, toastFailure } from "../../kit/toast.js";
import { counted, rate } from "../../lib/money.js";
import { specText } from "../../lib/yaml_text.js";
import { Events } from "../events/list.js";
import { Busy, Machines } from "./index.js";

/** @typedef {import("../../types").FleetSummary} FleetSummary */

const TABS = /** @type {[string, string][]} */ ([["machines", "Machines"], ["events", "Events"], ["spec", "Spec"]]);

/** @param {string} project @param {string} name */
export const fleetPath = (project, name) => `/projects/${encodeURIComponent(project)}/fleets/${encodeURIComponent(name)}`;

/** @param {{project: string, name: string, query: Record<string, string>}} props */
export function OneFleet({ project, name, query }) {
  const { item: fleet, loading, error } = useItem("fleets", project, name);
  const { items } = useCollection("instances", project);
  const machines = items.filter((each) => each.fleet === name);
  const back = { href: link(project, "fleets"), text: "Fleets" };
  if (!fleet) return html`<${Page} title=${name} back=${back}><${Failed} error=${error} />${loading ? html`<${Loading} />` : html`<${Empty} title="There is no fleet of this name." next="It may have been deleted: the page Events has its history." />`}<//>`;
  const current = TABS.some(([key]) => key === query.tab) ? query.tab : "machines";
  const tabs = TABS.map(([key, title]) => ({ key, title, href: link(project, "fleets", name, key === "machines" ? {} : { tab: key }), count: key === "machines" ? machines.length : undefined }));
  return html`<${Page} title=${name} back=${back} actions=${html`<${Delete} fleet=${fleet} />`}>
    ${fleet.why && html`<${Notice} kind=${fleet.status === "failed" ? "bad" : "warn"}><p><${Words} text=${fleet.why} /></p><//>`}
    <${Facts} items=${[["Status", html`<${Status} value=${fleet.status} />`], ["GPUs busy", html`<${Busy} fleet=${fleet} />`], ["Price now", html`<${Money} usd=${fleet.price_per_hour_usd} hourly />`],
      ["Created", html`<${Ago} at=${fleet.created_at} />`], ["Changed", fleet.revision > 0 ? counted(fleet.revision, "time") : null]]} />
    <${Tabs} label="Parts of the fleet" tabs=${tabs} current=${current} />
    ${current === "machines" ? html`<${Machines} project=${project} items=${machines} query=${query} />` : current === "events" ? html`<${History} project=${project} of=${{ fleet_id: fleet.id }} changed=${machines} />` : html`<${Spec} fleet=${fleet} />`}
  <//>`;
}

/** The events of a fleet or a machine, read again when it has changed. @param {{project: string, of: Record<string, string>, changed: any}} props */
export function History({ project, of, changed }) {
  const [state, setState] = useState(/** @type {{items: any[] | null, error: any}} */ ({ items: null, error: null }));
  const key = JSON.stringify([of, changed]);
  useEffect(() => {
    const leaving = new AbortController();
    get(`/projects/${encodeURIComponent(project)}/events`, { ...of, limit: 50 }, { signal: leaving.signal })
      .then(({ items }) => setState({ items, error: null }), (error) => leaving.signal.aborted || setState((was) => ({ ...was, error })));
    return () => leaving.abort();
  }, [project, key]);
  return html`<${Failed} error=${state.error} />${state.items ? html`<${Events} events=${state.items} project=${project} />` : !state.error && html`<${Loading} />`}`;
}

/** @param {{fleet: FleetSummary}} props */
function Spec({ fleet }) {
  const [state, setState] = useState(/** @type {{text: string | null, error: any}} */ ({ text: null, error: null }));
  useEffect(() => {
    get(`${fleetPath(fleet.project, fleet.name)}/spec`).then((spec) => setState({ text: specText(spec), error: null }), (error) => setState({ text: null, error }));
  }, [fleet.id, fleet.revision]);
  return html`<${Failed} error=${state.error} />${state.text !== null && html`<p class="soft">To change it, edit its file and <code>dstack apply</code> it again.</p><${Code} text=${state.text} copy label="Configuration" />`}`;
}

/** @param {{fleet: FleetSummary}} props */
function Delete({ fleet }) {
  const { can } = useSession(fleet.project);
  if (!can("fleets", fleet.project) || fleet.status === "terminating") return null;
  const remove = async () => {
    const saves = fleet.price_per_hour_usd > 0 ? ` That saves ${rate(fleet.price_per_hour_usd)}.` : "";
    const text = `${fleet.instance_count > 0 ? `Its ${counted(fleet.instance_count, "machine")} end with it; your own are cleared, and stay.` : "It has no machines now."}${saves}`;
    if (!(await confirm({ title: `Delete the fleet ${fleet.name}?`, text, action: "Delete", danger: true, typed: fleet.instance_count > 5 ? fleet.name : undefined }))) return;
    try {
      await send("DELETE", fleetPath(fleet.project, fleet.name));
      toast(`${fleet.name} is being deleted.`);
      await refresh("fleets", fleet.project);
      go(link(fleet.project, "fleets"));
    } catch (error) {
      toastFailure(error);
    }
  };
  return html`<${Button} icon="trash" onClick=${remove}>Delete<//>`;
}
