import { link } from "../../app/router.js";
import { useCollection } from "../../data/live.js";
import { Empty } from "../../kit/empty.js";
import { Page, Section } from "../../kit/page.js";
import { html } from "../../kit/preact.js";
import { Status } from "../../kit/status.js";

/** @param {import("../../types").PageProps} props */
export default function Overview({ project }) {
  const runs = useCollection("runs", project);
  const active = runs.items.filter((run) => !["done", "failed", "terminated"].includes(run.status));
  return html`<${Page} title="Overview">
    <${Section} title="Active runs">
      ${active.length === 0 ? html`<${Empty} title="Nothing runs." />` : html`<ul class="plain">${active.map((run) => html`<li key=${run.id}>
        <a href=${link(run.project, "runs", run.name)}>${run.name}</a> <${Status} value=${run.status} /></li>`)}</ul>`}
    </${Section}>
  </${Page}>`;
}
