// What surrounds every page: navigation, project, palette, and what is announced.
import { live } from "../data/live.js";
import { failure, load, reloadProjects, session as sessionStore, signOut, useSession } from "../data/session.js";
import { refused, token } from "../data/token.js";
import { Button } from "../kit/button.js";
import { Confirmations } from "../kit/dialog.js";
import { Empty, Loading } from "../kit/empty.js";
import { Icon } from "../kit/icon.js";
import { lazy } from "../kit/lazy.js";
import { Menu } from "../kit/menu.js";
import { Failed } from "../kit/notice.js";
import { Page } from "../kit/page.js";
import { html, useEffect, useRef, useState } from "../kit/preact.js";
import { Toasts, toastFailure } from "../kit/toast.js";
import { useStore } from "../kit/use_store.js";
import { Announcer } from "./announcer.js";
import { Keys } from "./help.js";
import { listen } from "./keys.js";
import { HOME, hrefOf, pageOf, shown } from "./pages.js";
import { Palette } from "./palette.js";
import { go, link, useRoute } from "./router.js";
import { SignInAgain, SignInPage } from "./sign_in.js";
import { TabState } from "./tab_state.js";
import { THEMES, setTheme, theme } from "./theme.js";
import { Update } from "./update.js";

const LAST = "dstack-project"; // the project that was open last

export function App() {
  const signedIn = useStore(token) !== null;
  const { user } = useStore(sessionStore);
  const error = useStore(failure);
  const again = useStore(refused);
  if (!signedIn) return html`<${SignInPage} /><${Toasts} />`;
  return html`${user ? html`<${Shell} />` : error ? html`<main class="door" id="main"><div class="door-box"><h1>dstack</h1>
      <${Failed} error=${error} retry=${load} /><${Button} onClick=${signOut}>Sign out</${Button}></div></main>` : html`<${Loading} />`}
    ${again && html`<${SignInAgain} />`}<${Confirmations} /><${Toasts} />`;
}

function Shell() {
  const route = useRoute();
  const { projects } = useSession();
  const project = route.project ?? lastProject(projects);
  const known = project === null || projects.some((each) => each.name === project);
  const session = useSession(known ? project : null);
  const [palette, setPalette] = useState(false);
  const [help, setHelp] = useState(false);
  const [menu, setMenu] = useState(false);
  const arrived = useRef(false);
  const pages = shown(session, project);

  useEffect(() => {
    if (route.project && known) localStorage.setItem(LAST, route.project);
    else if (route.project) void reloadProjects().catch(toastFailure); // it may be new
  }, [route.project, known]);
  useEffect(() => {
    if (!route.page) go(project ? link(project, HOME) : link(null, "users"), { replace: true });
  }, [route.page, project]);
  useEffect(() => {
    setMenu(false);
    if (arrived.current) /** @type {HTMLElement | null} */ (document.querySelector("h1") ?? document.querySelector("main"))?.focus({ preventScroll: true }); // not as it is loaded: Tab begins at the top
    arrived.current ||= route.page !== "";
    scrollTo(0, 0);
  }, [route.project, route.page, route.parts.join("/")]);
  useGlobalKeys(pages, project, () => setPalette(true), () => setHelp(true));

  const Current = pageOf(route.page, route.parts);
  return html`<div class=${menu ? "shell menu-open" : "shell"}>
    <a class="skip" href="#main" onClick=${skip}>Skip to the page</a>
    <header class="top">
      <${Button} icon="menu" label="Menu" kind="plain" aria-expanded=${menu} aria-controls="nav" onClick=${() => setMenu(!menu)} />
      <a class="brand" href=${project ? link(project, HOME) : "#/"}>dstack</a>
      <${ProjectSwitch} project=${project} projects=${projects} page=${route.page} />
      <button type="button" class="jump" aria-label="Go to … Ctrl K" onClick=${() => setPalette(true)}><${Icon} name="search" /><span>Go to …</span><kbd>Ctrl K</kbd></button>
      <${Live} /><${Me} name=${session.user.name} onHelp=${() => setHelp(true)} />
    </header>
    <nav class="side" id="nav" aria-label="Pages"><ul>${pages.map((page) => html`<li key=${page.name} class=${page.of}>
      <a href=${hrefOf(page, project)} onPointerEnter=${page.load} onFocus=${page.load} aria-current=${page.name === route.page ? "page" : undefined}><${Icon} name=${page.icon} />${page.title}</a></li>`)}</ul></nav>
    <main id="main" tabindex="-1" class="main"><${Update} />${
      !Current || !known ? html`<${Missing} route=${route} project=${project} known=${known} />`
      : Current.of === "project" && !project ? html`<${NoProject} />`
      : html`<${componentOf(Current)} key=${`${project}/${Current.name}/${route.parts.join("/")}`} project=${project} parts=${route.parts} query=${route.query} />`
    }</main>
    <${Announcer} project=${known ? project : null} /><${TabState} project=${known ? project : null} open=${route.page === "runs" ? (route.parts[0] ?? null) : null} />
    ${palette && html`<${Palette} project=${project} onClose=${() => setPalette(false)} />`}
    ${help && html`<${Keys} onClose=${() => setHelp(false)} />`}
  </div>`;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.querySelector("main")?.focus();
}

/** @param {import("../types").Project[]} projects */
function lastProject(projects) {
  const last = localStorage.getItem(LAST);
  return (projects.find((each) => each.name === last) ?? projects.find((each) => each.name === "main") ?? projects[0])?.name ?? null;
}

/** @param {import("../types").PageEntry[]} pages @param {string | null} project @param {() => void} onPalette @param {() => void} onHelp */
function useGlobalKeys(pages, project, onPalette, onHelp) {
  useEffect(() => {
    const palette = (/** @type {KeyboardEvent} */ event) => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "k") return;
      event.preventDefault();
      if (!document.querySelector("dialog[open]")) onPalette();
    };
    addEventListener("keydown", palette);
    return () => removeEventListener("keydown", palette);
  }, []);
  useEffect(() => listen([
    ...pages.filter((page) => page.key).map((page) => ({ keys: `g ${page.key}`, text: `Go to ${page.title.toLowerCase()}`, act: () => go(hrefOf(page, project)) })),
    { keys: "/", text: "Filter this page", act: () => /** @type {HTMLElement | null} */ (document.querySelector("[data-filter]"))?.focus() },
    { keys: "j", text: "Next row", act: rows },
    { keys: "k", text: "Row before", act: rows },
    { keys: "?", text: "Show the keys", act: onHelp },
  ]), [pages.map((page) => page.name).join(), project]);
}

/** The first press goes to the table; from then on it moves by itself. @param {KeyboardEvent} event */
function rows(event) {
  const table = /** @type {HTMLElement | null} */ (document.querySelector("[data-table]"));
  table?.focus();
  table?.dispatchEvent(new KeyboardEvent("keydown", { key: event.key, bubbles: false, cancelable: true }));
}

/** @param {{project: string | null, projects: import("../types").Project[], page: string}} props */
function ProjectSwitch({ project, projects, page }) {
  if (projects.length === 0) return null;
  const target = pageOf(page, [])?.of === "project" ? page : HOME;
  return html`<${Menu} title=${project ?? "Choose a project"} label=${`Project: ${project ?? "none"}`} kind="plain" start
    items=${projects.map((each) => ({ title: each.name, href: link(each.name, target), current: each.name === project }))} />`;
}

function Live() {
  const state = useStore(live);
  if (state === "off") return null;
  return html`<span class="live ${state}" role="status">${state === "live" ? "Live" : "Reconnecting …"}</span>`;
}

/** @param {{name: string, onHelp: () => void}} props */
function Me({ name, onHelp }) {
  const chosen = useStore(theme);
  const icons = { system: "screen", light: "sun", dark: "moon" }, titles = { system: "As the system", light: "Light", dark: "Dark" };
  return html`<${Menu} title=${name} label=${`You: ${name}`} kind="plain" icon="users" note=${`Signed in as ${name}`} items=${[
    ...THEMES.map((each) => ({ title: titles[each], icon: icons[each], current: each === chosen, onSelect: () => setTheme(each) })),
    { title: "Keys", icon: "key", onSelect: onHelp },
    { title: "Sign out", icon: "out", onSelect: signOut },
  ]} />`;
}

/** @type {Map<string, (props: any) => any>} */
const loaded = new Map();

/** @param {import("../types").PageEntry} page */
function componentOf({ name, component, load }) {
  if (component) return component;
  if (!loaded.has(name)) loaded.set(name, lazy(() => /** @type {NonNullable<typeof load>} */ (load)().then((module) => module.default)));
  return /** @type {(props: any) => any} */ (loaded.get(name));
}

function NoProject() {
  return html`<${Page} title="No project yet"><${Empty} title="You are in no project." next="Somebody who manages one can add you, or create one: dstack project create NAME." /></${Page}>`;
}

/** @param {{route: {page: string}, project: string | null, known: boolean}} props */
function Missing({ route, project, known }) {
  if (!known) return html`<${Page} title="Nothing here"><${Empty} title=${`There is no project “${project}”, or you aren’t in it.`} next=${html`<a href="#/">Go to a project of yours</a>`} /></${Page}>`;
  if (!route.page) return null;
  return html`<${Page} title="Nothing here"><${Empty} title=${`There is no page “${route.page}”.`} next=${project && html`<a href=${link(project, HOME)}>Go to the overview</a>`} /></${Page}>`;
}
