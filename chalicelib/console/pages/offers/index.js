// What machines there are, and what they cost.
import { link, setQuery } from "../../app/router.js";
import { get } from "../../data/api.js";
import { useSession } from "../../data/session.js";
import { Button } from "../../kit/button.js";
import { Empty, Loading } from "../../kit/empty.js";
import { SelectField, TextField } from "../../kit/fields.js";
import { Money } from "../../kit/money.js";
import { Failed } from "../../kit/notice.js";
import { Page } from "../../kit/page.js";
import { html, useEffect, useMemo, useState } from "../../kit/preact.js";
import { Table } from "../../kit/table.js";
import { counted } from "../../lib/money.js";
import { gpuTitle, grouped, size, wanted } from "../../lib/offers.js";
import { sortOf, sortText } from "../../lib/sorting.js";

/** @typedef {import("../../types").Offer} Offer */
/** @typedef {import("../../lib/offers.js").By} By */

const MOST = 100;
const FIELDS = ["gpu", "cpu", "memory", "backends", "regions", "max_price"];
/** @type {[By, string][]} */
const GROUPS = [["gpu", "GPU"], ["backend", "Backend"], ["region", "Region"], ["none", "Nothing"]];

/** @param {import("../../types").PageProps} props */
export default function Offers({ project, query }) {
  const { found, error, loading } = useOffers(/** @type {string} */ (project), query);
  const by = /** @type {By} */ (GROUPS.some(([key]) => key === query.by) ? query.by : "gpu");
  const groups = useMemo(() => (found ? grouped(found.items, by) : []), [found, by]);
  const lead = found && found.total > found.items.length ? `The ${found.items.length} cheapest of ${found.total} offers.` : found && counted(found.items.length, "offer");
  return html`<${Page} title="Offers" lead=${lead ?? "…"}>
    <${Filters} key=${FIELDS.map((name) => query[name]).join("|")} query=${query} by=${by} />
    <${Failed} error=${error} />
    ${loading && !found ? html`<${Loading} />` : found && (by === "none"
      ? html`<${Single} offers=${found.items} query=${query} project=${project} />`
      : groups.length === 0 ? html`<${Nothing} />` : groups.map((group) => html`<${OneGroup} key=${group.key} group=${group} by=${by} project=${project} />`))}
  </${Page}>`;
}

/** @param {string} project @param {Record<string, string>} query */
function useOffers(project, query) {
  const [state, setState] = useState(/** @type {{found: any, error: any, loading: boolean}} */ ({ found: null, error: null, loading: true }));
  const asked = { ...Object.fromEntries(FIELDS.map((name) => [name, query[name]])), spot_policy: query.spot ?? "auto", limit: MOST };
  useEffect(() => {
    const leaving = new AbortController();
    setState((was) => ({ ...was, loading: true }));
    get(`/projects/${encodeURIComponent(project)}/offers`, asked, { signal: leaving.signal }).then(
      (found) => setState({ found, error: null, loading: false }),
      (error) => !leaving.signal.aborted && setState({ found: null, error, loading: false }),
    );
    return () => leaving.abort();
  }, [project, JSON.stringify(asked)]);
  return state;
}

/** @param {{query: Record<string, string>, by: By}} props */
function Filters({ query, by }) {
  const [given, setGiven] = useState(/** @type {Record<string, string>} */ ({ ...query }));
  const field = (/** @type {string} */ name) => ({ value: given[name] ?? "", onInput: (/** @type {string} */ value) => setGiven({ ...given, [name]: value }) });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    setQuery(Object.fromEntries(FIELDS.map((name) => [name, (given[name] ?? "").trim() || null])));
  };
  const any = FIELDS.some((name) => query[name]);
  return html`<form class="offer-filters" role="search" aria-label="Filter offers" onSubmit=${submit}>
    <${TextField} label="GPU" placeholder="H100:8, 24GB.." data-filter ...${field("gpu")} />
    <${TextField} label="CPUs" placeholder="8.." ...${field("cpu")} />
    <${TextField} label="Memory" placeholder="32GB.." ...${field("memory")} />
    <${TextField} label="Backends" placeholder="aws,gcp" ...${field("backends")} />
    <${TextField} label="Regions" placeholder="us-east-1" ...${field("regions")} />
    <${TextField} label="Most $ an hour" inputmode="decimal" placeholder="10" ...${field("max_price")} />
    <${SelectField} label="Spot" value=${query.spot ?? "auto"} options=${[["auto", "Either"], ["spot", "Spot"], ["on-demand", "On demand"]]}
      onInput=${(/** @type {string} */ spot) => setQuery({ spot: spot === "auto" ? null : spot })} />
    <${SelectField} label="Group by" value=${by} options=${GROUPS} onInput=${(/** @type {string} */ key) => setQuery({ by: key === "gpu" ? null : key })} />
    <div class="actions"><${Button} type="submit" kind="primary">Find</${Button}>
      ${any && html`<${Button} kind="plain" onClick=${() => setQuery(Object.fromEntries(FIELDS.map((name) => [name, null])))}>Clear</${Button}>`}</div>
  </form>`;
}

const Nothing = () => html`<${Empty} title="No offer meets this."
  next="Ask for less: fewer GPUs, another kind, more regions, or a higher price. Backends are added in the project’s settings." />`;

/** @param {{group: import("../../lib/offers.js").Group, by: By, project: string | null}} props */
function OneGroup({ group, by, project }) {
  const [open, setOpen] = useState(false);
  const shown = open ? group.offers : group.offers.slice(0, 3);
  return html`<section class="section flush offer-group">
    <header class="section-head"><h2>${group.title}</h2>
      <p class="offer-sum"><span>from <b><${Money} usd=${group.cheapest.price_per_hour_usd} hourly /></b></span>
        <span class="soft">${group.backends.join(", ")} · ${counted(group.regions, "region")} · ${counted(group.offers.length, "offer")}</span></p></header>
    <${OfferTable} label=${`Offers: ${group.title}`} offers=${shown} project=${project} by=${by} />
    ${group.offers.length > 3 && html`<footer class="offer-more"><${Button} small kind="plain" icon=${open ? "up" : "down"} aria-expanded=${open}
      onClick=${() => setOpen(!open)}>${open ? "Show fewer" : `Show all ${group.offers.length} of ${group.title}`}</${Button}></footer>`}
  </section>`;
}

/** @param {{offers: Offer[], query: Record<string, string>, project: string | null}} props */
function Single({ offers, query, project }) {
  return html`<${OfferTable} label="Offers" tall offers=${offers} project=${project} by="none" sort=${sortOf(query.sort, { key: "price", down: false })}
    onSort=${(/** @type {any} */ sort) => setQuery({ sort: sortText(sort) })} empty=${html`<${Nothing} />`} />`;
}

/** @param {any} props */
function OfferTable({ offers, project, by, ...more }) {
  const { can } = useSession(project);
  const columns = useMemo(() => columnsOf(project, can("run", project)), [project, can("run", project)]);
  const at = new Map(offers.map((/** @type {Offer} */ offer, /** @type {number} */ number) => [offer, String(number)]));
  return html`<${Table} columns=${columns} rows=${offers} keyOf=${(/** @type {Offer} */ offer) => at.get(offer)} ...${more} />`;
}

/** @param {string | null} project @param {boolean} runs */
function columnsOf(project, runs) {
  /** @type {import("../../kit/table.js").Column[]} */
  const columns = [
    { key: "gpu", title: "GPU", width: 12, value: (offer) => gpuTitle(offer.resources) },
    { key: "where", title: "Where", value: (offer) => `${offer.backend} ${offer.region}`, cell: (offer) => html`${offer.backend} <span class="soft">${offer.region}</span>` },
    { key: "type", title: "Machine", wide: true, value: (offer) => offer.type },
    { key: "cpu", title: "CPUs", width: 5, align: "right", wide: true, value: (offer) => offer.resources.cpus },
    { key: "memory", title: "Memory", width: 6, align: "right", wide: true, value: (offer) => offer.resources.memory_gb, cell: (offer) => size(offer.resources.memory_gb) },
    { key: "spot", title: "Spot", width: 5, wide: true, value: (offer) => (offer.spot ? "spot" : "–") },
    { key: "availability", title: "Availability", width: 8, wide: true, value: (offer) => offer.availability.replaceAll("_", " ") },
    { key: "price", title: "Price", width: 7, align: "right", value: (offer) => offer.price_per_hour_usd, cell: (offer) => html`<${Money} usd=${offer.price_per_hour_usd} hourly />` },
  ];
  if (!runs) return columns;
  const use = (/** @type {Offer} */ offer) => html`<a href=${link(project, "launch", wanted(offer))} aria-label=${`Use ${offer.type}, ${gpuTitle(offer.resources)} in ${offer.backend} ${offer.region}`}>Use</a>`;
  return [...columns, { key: "use", title: html`<span class="unseen">Use it</span>`, width: 4, plain: true, cell: use }];
}
