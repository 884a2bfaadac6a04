// A configuration, what is wrong with it and what it would do, side by side; and then it is done.
import { go, link } from "../../app/router.js";
import { get, post, sendText } from "../../data/api.js";
import { refresh, useCollection } from "../../data/live.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { Empty, Loading } from "../../kit/empty.js";
import { SelectField } from "../../kit/fields.js";
import { Failed } from "../../kit/notice.js";
import { Page } from "../../kit/page.js";
import { html, useEffect, useMemo, useRef, useState } from "../../kit/preact.js";
import { toast } from "../../kit/toast.js";
import { TEMPLATES, freeName, taskFor } from "../../lib/templates.js";
import { topValue } from "../../lib/yaml_place.js";
import { specText } from "../../lib/yaml_text.js";
import { Editor } from "./editor.js";
import { Plan } from "./plan.js";

const SETTLED = 500; // milliseconds after the last key before a plan is asked for
/** @type {Record<string, import("../../types").Kind>} */
const LISTS = { task: "runs", service: "runs", "dev-environment": "runs", fleet: "fleets", volume: "volumes", gateway: "gateways" };
/** @type {Record<string, string>} */
const PAGES = { task: "runs", service: "runs", "dev-environment": "runs", fleet: "fleets", volume: "volumes", gateway: "gateways" };

/** @param {import("../../types").PageProps} props */
export default function Launch({ project, query }) {
  return html`<${Begun} key=${JSON.stringify(query)} project=${project} query=${query} />`; // another address, another text
}

/** @param {{project: string | null, query: Record<string, string>}} props */
function Begun({ project, query }) {
  const { can, knows } = useSession(project);
  const { items, loading } = useCollection(/** @type {import("../../types").Kind} */ (query.of ?? "runs"), project);
  const name = query.from ?? query.change;
  const [text, setText] = useState(/** @type {string | null} */ (name ? null : beginning(query)));
  const [error, setError] = useState(/** @type {any} */ (null));
  useEffect(() => {
    if (!name || loading || text !== null) return;
    specOf(/** @type {string} */ (project), name, query.of).then((spec) => setText(specText(query.from ? { ...spec, name: freeName(name, new Set(items.map((each) => each.name))) } : spec)), setError);
  }, [loading]);
  if (error) return html`<${Page} title="Launch"><${Failed} error=${error} /></${Page}>`;
  if (text === null || !knows(project)) return html`<${Page} title="Launch"><${Loading} /></${Page}>`;
  if (!can("run", project)) return html`<${Page} title="Launch"><${Empty} title="You can look at this project, and not run anything in it." next="Somebody who manages it can make you a user." /></${Page}>`;
  return html`<${Desk} project=${/** @type {string} */ (project)} text=${text} onText=${setText} stores=${query.store !== undefined} />`;
}

/** What a link says to begin with. @param {Record<string, string>} query */
function beginning(query) {
  if (query.gpu || query.backend) return taskFor(query);
  return (TEMPLATES.find((template) => template.key === query.template) ?? TEMPLATES[0])?.text ?? "";
}

/** The spec of something that is there. @param {string} project @param {string} name */
async function specOf(project, name, of = "runs") {
  const spec = await get(`/projects/${encodeURIComponent(project)}/${encodeURIComponent(of)}/${encodeURIComponent(name)}/spec`);
  return { ...spec, name };
}

/** @param {{project: string, text: string, onText: (text: string) => void, stores: boolean}} props `stores`: it is kept for rules, not done now */
function Desk({ project, text, onText, stores }) {
  const { plan, problem, asking } = usePlan(project, text);
  const [busy, setBusy] = useState(false);
  const sending = useRef(false); // a key comes again before `busy` is on screen
  const attempt = useMemo(newKey, [text]); // the same text sent twice is done once
  const ready = plan && !asking && (stores || plan.action !== "none");
  const [refusal, setRefusal] = useState(/** @type {any} */ (null));
  useEffect(() => setRefusal(null), [text]);
  const apply = async () => {
    if (!ready || sending.current) return;
    setBusy((sending.current = true));
    try {
      if (stores) return await store(project, text);
      const made = await write(project, text, { headers: { "Idempotency-Key": attempt } });
      const kind = LISTS[topValue(text, "type")] ?? "runs";
      const name = made.name ?? topValue(text, "name");
      void refresh(kind, project);
      toast(plan?.action === "change" ? `${name} is changed.` : `${name} is submitted.`);
      go(link(project, PAGES[topValue(text, "type")] ?? "runs", name));
    } catch (error) {
      setRefusal(error);
    } finally {
      setBusy((sending.current = false));
    }
  };
  const wrong = refusal ?? problem;
  const [title, lead] = stores ? ["Store a configuration", "Rules in the server’s file name it, and apply it in your name when something happens. dstack automation add -f does the same with a file."]
    : ["Launch", "Write what you want, see what it would do, and apply it. dstack apply -f does the same with a file."];
  return html`<${Page} title=${title} lead=${lead}>
    <div class="launch">
      <div class="launch-text">
        <${Begin} text=${text} onText=${onText} />
        <${Editor} text=${text} onText=${onText} problems=${problemsOf(wrong)} onApply=${apply} />
      </div>
      <${Plan} project=${project} text=${text} plan=${plan} problem=${wrong} asking=${asking}
        action=${html`<${Button} kind="primary" icon="launch" busy=${busy} disabled=${!ready} onClick=${apply}>${stores ? "Store" : "Apply"}</${Button}>`} />
    </div>
  </${Page}>`;
}

/** @param {string} project @param {string} text */
async function store(project, text) {
  const { name } = await post(`/project/${encodeURIComponent(project)}/automations/add`, { text });
  toast(`${name} is stored: rules can apply it.`);
  go(link(project, "settings", "automations"));
}

/** @param {{text: string, onText: (text: string) => void}} props */
function Begin({ text, onText }) {
  const current = TEMPLATES.find((template) => template.text === text)?.key ?? "";
  const choose = (/** @type {string} */ key) => onText(TEMPLATES.find((template) => template.key === key)?.text ?? text);
  return html`<${SelectField} label="Begin with" value=${current} onInput=${choose}
    options=${[...(current ? [] : [["", "Your own text"]]), ...TEMPLATES.map((template) => [template.key, template.title])]} />`;
}

/** What the API says would happen: asked once nobody has typed for a moment.
 * @param {string} project @param {string} text */
function usePlan(project, text) {
  const [state, setState] = useState(/** @type {{plan: any, problem: any, of: string | null}} */ ({ plan: null, problem: null, of: null }));
  useEffect(() => {
    const leaving = new AbortController();
    const timer = setTimeout(() => {
      write(project, text, { query: { dry_run: true }, signal: leaving.signal }).then(
        (plan) => setState({ plan, problem: null, of: text }),
        (problem) => !leaving.signal.aborted && setState({ plan: null, problem, of: text }),
      );
    }, SETTLED);
    return () => {
      clearTimeout(timer);
      leaving.abort();
    };
  }, [project, text]);
  return { ...state, asking: state.of !== text };
}

/** `crypto.randomUUID` is for pages over https alone. */
const newKey = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("-");

/** A named run, fleet or gateway is changed if it is there; anything else is made. @param {string} project @param {string} text @param {any} options */
function write(project, text, options) {
  const list = LISTS[topValue(text, "type")] ?? "runs", name = topValue(text, "name");
  const path = `/projects/${encodeURIComponent(project)}/${list}`;
  if (name && list !== "volumes") return sendText("PUT", `${path}/${encodeURIComponent(name)}/spec`, text, options);
  return sendText("POST", path, text, options);
}

/** @param {any} problem @returns {import("./editor.js").Wrong[]} */
function problemsOf(problem) {
  const parts = /** @type {any[]} */ (problem?.errors ?? []);
  return parts.map(({ line = 0, pointer = "", detail, hint }) => ({ line, field: pointer.slice(1).replaceAll("/", "."), text: detail, hint }));
}
