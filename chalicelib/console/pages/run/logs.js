// The log of a run: of any job and attempt, searched, followed, with a link to each line.
import { listen } from "../../app/keys.js";
import { link, setQuery } from "../../app/router.js";
import { get } from "../../data/api.js";
import { usePolling } from "../../data/live.js";
import { Button } from "../../kit/button.js";
import { Empty, Loading } from "../../kit/empty.js";
import { SearchField, SelectField } from "../../kit/fields.js";
import { Failed, Notice } from "../../kit/notice.js";
import { html, useEffect, useMemo, useRef, useState } from "../../kit/preact.js";
import { toastFailure } from "../../kit/toast.js";
import { Query, linesOf, linkOf, nextMatch } from "../../lib/log_lines.js";
import { runPath } from "../../lib/run_facts.js";
import { attemptsOf } from "../../lib/timeline.js";
import { ago } from "../../lib/time.js";
import { LogFeed, wholeLog } from "./log_feed.js";
import { LogView } from "./log_view.js";

/** @typedef {import("../../types").Run} Run */

const SOON = 1, LATER = 5, NEVER = 3600; // seconds
const KEPT = "dstack-log-view";

/** @param {{run: Run, events: import("../../types").Event[], query: Record<string, string>}} props */
export function Logs({ run, events, query }) {
  const attempts = attemptsOf(run.jobs, events);
  const job = query.job ?? run.jobs[0]?.id ?? attempts[0]?.id;
  if (!job) return html`<${Empty} title="It has no job yet." next=${run.why ?? "Its log begins with its first job."} />`;
  return html`<${JobLog} key=${job} run=${run} job=${job} attempts=${attempts} query=${query} />`;
}

/** @param {Run} run @param {string} job */
const reader = (run, job) => (/** @type {Record<string, any>} */ query) => get(`${runPath(run)}/logs`, { job, ...query });

/** @param {{run: Run, job: string, attempts: ReturnType<typeof attemptsOf>, query: Record<string, string>}} props */
function JobLog({ run, job, attempts, query }) {
  const selected = linesOf(query.line);
  const { feed, version } = useFeed(run, job, selected === null);
  const [follow, setFollow] = useState(selected === null);
  const [look, setLook] = useLook();
  const ended = run.jobs.find((each) => each.id === job)?.finished_at !== null;
  usePolling(() => feed.poll(), ended ? NEVER : follow ? SOON : LATER, [feed, ended], { watched: follow });
  const lines = feed.shown;
  const search = useSearch(lines, version, query.find ?? "");
  const [target, setTarget] = useState(selected && { number: selected.from, turn: 0 });
  const goTo = (/** @type {number | null} */ number) => number && setTarget({ number, turn: Date.now() });
  const here = useRef(query.line); // of what was pressed in the log itself, which stays where it is
  useEffect(() => {
    if (query.line === here.current) return;
    here.current = query.line;
    if (!selected) return;
    setFollow(false);
    goTo(selected.from);
  }, [query.line]);
  const step = (/** @type {1 | -1} */ by) => {
    const number = nextMatch(search.matches, search.place.current ?? (by > 0 ? 0 : Infinity), by);
    if (!number) return;
    setFollow(false);
    search.setCurrent(number);
    goTo(number);
  };
  useKeys({ n: () => step(1), N: () => step(-1), f: () => setFollow(!follow), w: () => setLook({ ...look, wrap: !look.wrap }) });
  const hrefOf = (/** @type {number} */ number, /** @type {boolean} */ extended = false) =>
    link(run.project, "runs", run.name, { ...query, tab: "logs", job: query.job, line: linkOf(selected, number, extended) });
  const onLine = (/** @type {number} */ number, /** @type {boolean} */ extended) => setQuery({ tab: "logs", line: (here.current = linkOf(selected, number, extended)) });

  return html`<div class="log">
    <div class="log-tools">
      <${SearchField} label="Search in the log" value=${query.find ?? ""} placeholder="Search (n: next, N: previous)" onInput=${(/** @type {string} */ find) => setQuery({ find })}
        onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Enter" && step(event.shiftKey ? -1 : 1)} />
      <${Found} search=${search} step=${step} look=${look} setLook=${setLook} />
      ${attempts.length > 1 && html`<${SelectField} label="Job" hideLabel value=${job} options=${attempts.map(named)} onInput=${(/** @type {string} */ id) => setQuery({ job: id, line: null })} />`}
      <span class="log-switches">
        <${Switch} on=${follow} onClick=${() => setFollow(!follow)} text="Follow" />
        <${Switch} on=${look.wrap} onClick=${() => setLook({ ...look, wrap: !look.wrap })} text="Wrap" />
        <${Switch} on=${look.times} onClick=${() => setLook({ ...look, times: !look.times })} text="Times" />
        <${Button} small icon="download" onClick=${() => download(run, job)}>Download<//>
      </span>
    </div>
    <${Failed} error=${feed.error} retry=${() => feed.poll()} />
    ${lines.dropped > 0 && html`<${Notice}><p>Lines 1 to ${lines.dropped.toLocaleString("en")} aren't shown; the download has them.</p><//>`}
    ${lines.length === 0 ? html`<${Nothing} feed=${feed} ended=${ended} />` : html`<${LogView} lines=${lines} version=${version} numbered=${feed.tail === null}
      follow=${follow} onFollow=${setFollow} wrap=${look.wrap} times=${look.times} query=${search.query} only=${look.only ? search.only : null}
      selected=${selected} current=${search.current} target=${target} hrefOf=${hrefOf} onLine=${onLine} />`}
    <p class="log-state" role="status">${stateText(feed, ended)}</p>
  </div>`;
}

/** @param {Run} run @param {string} job @param {boolean} tail */
function useFeed(run, job, tail) {
  const [version, setVersion] = useState(0);
  const feed = useMemo(() => {
    let due = false;
    const changed = () => {
      if (due) return;
      due = true;
      requestAnimationFrame(() => {
        due = false;
        setVersion((number) => number + 1);
      });
    };
    return new LogFeed(reader(run, job), changed, { tail });
  }, [run.id, job]);
  useEffect(() => () => feed.stop(), [feed]);
  return { feed, version };
}

/** @typedef {ReturnType<typeof useSearch>} Search */
/** What is found, kept up as lines come. @param {import("../../lib/log_lines.js").LogLines} lines @param {number} version @param {string} text */
function useSearch(lines, version, text) {
  const query = useMemo(() => (text ? new Query(text) : null), [text]);
  const [current, show] = useState(/** @type {number | null} */ (null));
  const place = useRef(current); // at once, for keys that come faster than the page is drawn
  const setCurrent = (/** @type {number | null} */ number) => show((place.current = number));
  const kept = useMemo(() => ({ matches: /** @type {number[]} */ ([]), upTo: 0 }), [query, lines]);
  const matches = useMemo(() => {
    if (!query) return kept.matches;
    const from = Math.max(0, kept.upTo - lines.first); // the last line may have grown
    const before = kept.matches.filter((number) => number >= lines.first && number < lines.first + from);
    kept.matches = [...before, ...lines.matches(query, from)];
    kept.upTo = lines.last;
    return kept.matches;
  }, [kept, version]);
  const only = useMemo(() => (query ? matches.map((number) => number - lines.first) : null), [matches, query]);
  useEffect(() => setCurrent(null), [query]);
  return { query, matches, only, current, place, setCurrent };
}

/** @param {{search: Search, step: (by: 1 | -1) => void, look: Look, setLook: (look: Look) => void}} props */
function Found({ search, step, look, setLook }) {
  const { query, matches, current } = search;
  if (!query) return null;
  const place = current === null ? "" : `${matches.indexOf(current) + 1} of `;
  return html`<span class="log-found"><span class="number" role="status">${place}${matches.length.toLocaleString("en")} ${matches.length === 1 ? "line" : "lines"}</span>
    <${Button} small icon="up" label="Previous match" onClick=${() => step(-1)} /><${Button} small icon="down" label="Next match" onClick=${() => step(1)} />
    <${Switch} on=${look.only} onClick=${() => setLook({ ...look, only: !look.only })} text="Only these" /></span>`;
}

/** @param {{on: boolean, onClick: () => void, text: string}} props */
const Switch = ({ on, onClick, text }) => html`<button type="button" class="button small" aria-pressed=${on} onClick=${onClick}>${text}</button>`;

/** @typedef {{wrap: boolean, times: boolean, only: boolean}} Look how lines are shown, kept on this machine */
/** @returns {[Look, (look: Look) => void]} */
function useLook() {
  const [look, setLook] = useState(/** @type {Look} */ ({ wrap: true, times: false, only: false, ...lastLook() }));
  return [look, (next) => {
    localStorage.setItem(KEPT, JSON.stringify({ wrap: next.wrap, times: next.times }));
    setLook(next);
  }];
}

function lastLook() {
  try {
    const { wrap, times } = JSON.parse(localStorage.getItem(KEPT) ?? "{}");
    return { wrap: wrap !== false, times: times === true };
  } catch {
    return {}; // written by another version
  }
}

/** @param {Record<string, () => void>} acts */
function useKeys(acts) {
  const latest = useRef(acts);
  latest.current = acts;
  useEffect(() => listen(Object.keys(acts).map((keys) => ({ keys, text: KEYS[keys] ?? "", act: () => latest.current[keys]?.() }))), []);
}

/** @type {Record<string, string>} */
const KEYS = { n: "Next match in the log", N: "Previous match in the log", f: "Follow the log", w: "Wrap lines of the log" };

/** @param {{feed: LogFeed, ended: boolean}} props */
function Nothing({ feed, ended }) {
  if (!feed.complete) return feed.error ? null : html`<${Loading} text="Reading the log …" />`;
  return html`<${Empty} title=${ended ? "The job wrote nothing." : "Nothing was written yet."} next=${ended ? "The tab Events says what happened to it." : "What it writes is shown here within a second or two."} />`;
}

/** @param {LogFeed} feed @param {boolean} ended */
function stateText(feed, ended) {
  const count = feed.lines.last.toLocaleString("en");
  if (!feed.complete) return feed.lines.length > 0 ? `Reading the log: ${count} lines …` : "";
  return `${count} ${feed.lines.last === 1 ? "line" : "lines"}${ended ? ", complete" : ""}`;
}

/** @param {ReturnType<typeof attemptsOf>[number]} attempt @returns {[string, string]} */
const named = ({ id, name, at, number, latest }) => [id, `${name}${latest && number === 1 ? "" : `, attempt ${number}`}, ${ago(Date.parse(at), Date.now())}`];

/** @param {Run} run @param {string} job */
async function download(run, job) {
  try {
    const url = URL.createObjectURL(new Blob(await wholeLog(reader(run, job)), { type: "text/plain" }));
    const anchor = Object.assign(document.createElement("a"), { href: url, download: `${run.name}.log` });
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  } catch (error) {
    toastFailure(error);
  }
}
