// What a project is made of besides its runs and machines: one part for each, with its own address.
import { go, link } from "../../app/router.js";
import { useSession } from "../../data/session.js";
import { Page } from "../../kit/page.js";
import { html, useEffect } from "../../kit/preact.js";
import { Tabs } from "../../kit/tabs.js";
import { Automations } from "./automations.js";
import { Backends } from "./backends.js";
import { Exports } from "./exports.js";
import { General } from "./general.js";
import { Members } from "./members.js";
import { Quotas } from "./quotas.js";
import { Secrets } from "./secrets.js";

/** @type {{key: string, title: string, needs?: import("../../types").Verb, component: (props: {project: string}) => any}[]} */
const PARTS = [
  { key: "general", title: "General", component: General },
  { key: "members", title: "Members", component: Members },
  { key: "backends", title: "Backends", needs: "administer", component: Backends },
  { key: "secrets", title: "Secrets", needs: "administer", component: Secrets },
  { key: "quotas", title: "Quotas", component: Quotas },
  { key: "exports", title: "Exports", needs: "administer", component: Exports },
  { key: "automations", title: "Automations", component: Automations },
];

/** @param {import("../../types").PageProps} props */
export default function Settings({ project, parts }) {
  const { can } = useSession(project);
  const shown = PARTS.filter((part) => !part.needs || can(part.needs, project));
  const current = PARTS.find((part) => part.key === parts[0]);
  useEffect(() => {
    if (!current) go(link(project, "settings", PARTS[0].key), { replace: true });
  }, [current]);
  if (!current || project === null) return null;
  const tabs = shown.map(({ key, title }) => ({ key, title, href: link(project, "settings", key) }));
  return html`<${Page} title="Settings" name=${`${current.title} · Settings`}>
    <div><${Tabs} label="Settings" tabs=${tabs} current=${current.key} /><div class="stack"><${current.component} project=${project} /></div></div>
  <//>`;
}
