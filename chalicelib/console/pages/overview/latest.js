import { link } from "../../app/router.js";
import { get } from "../../data/api.js";
import { useCollection } from "../../data/live.js";
import { Empty, Loading } from "../../kit/empty.js";
import { Failed } from "../../kit/notice.js";
import { Section } from "../../kit/page.js";
import { html, useEffect, useState } from "../../kit/preact.js";
import { Events } from "../events/list.js";

const ASKED = 60, SHOWN = 12; // of events: those of jobs and machines follow from those of runs and fleets
const DETAILS = new Set(["job", "instance"]);

/** What happened last; asked for again when something of the project has changed. @param {{project: string | null}} props */
export function Latest({ project }) {
  const changed = useCollection("runs", project).changedAt + useCollection("fleets", project).changedAt;
  const [events, setEvents] = useState(/** @type {any[] | null} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  useEffect(() => {
    let over = false;
    get(project ? `/projects/${encodeURIComponent(project)}/events` : "/events", { limit: ASKED }).then(
      (page) => !over && (setEvents(page.items.filter((/** @type {any} */ event) => !DETAILS.has(event.targets[0]?.type)).slice(0, SHOWN)), setError(null)),
      (failed) => !over && setError(failed),
    );
    return () => {
      over = true;
    };
  }, [project, changed]);
  return html`<${Section} title="Latest changes" actions=${html`<a href=${link(project, "events")}>All events</a>`}>
    <${Failed} error=${error} />
    ${events === null ? !error && html`<${Loading} />` : html`<${Events} events=${events} project=${project} empty=${html`<${Empty} title="Nothing has happened yet." />`} />`}
  <//>`;
}
