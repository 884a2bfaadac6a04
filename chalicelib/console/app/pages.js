// The table of pages. Whoever builds one adds its row here: it is in the navigation, in the palette and has its key. What
// people open first is in the first script (`component`), the rest in another (`more_pages.js`).
import { morePages } from "./more.js";
import { link } from "./router.js";
import Overview from "../pages/overview/index.js";
import Runs from "../pages/runs/index.js";
import Run from "../pages/run/index.js";

/** @typedef {import("../types").PageEntry} PageEntry */

/** A page that isn't in the first script. @param {keyof typeof import("./more_pages.js")} name */
const more = (name) => () => morePages().then((pages) => ({ default: pages[name] }));

/** @type {PageEntry[]} */
export const PAGES = [
  { name: "overview", title: "Overview", icon: "overview", key: "o", of: "project", component: Overview },
  { name: "runs", title: "Runs", icon: "runs", key: "r", of: "project", component: Runs },
  { name: "run", title: "Run", icon: "runs", of: "project", hidden: true, component: Run },
  { name: "services", title: "Services", icon: "services", key: "s", of: "project", load: more("Services") },
  { name: "launch", title: "Launch", icon: "launch", key: "n", of: "project", shown: (session, project) => session.can("run", project), load: more("Launch") },
  { name: "fleets", title: "Fleets", icon: "fleets", key: "f", of: "project", load: more("Fleets") },
  { name: "volumes", title: "Volumes", icon: "volumes", key: "v", of: "project", load: more("Volumes") },
  { name: "gateways", title: "Gateways", icon: "gateways", key: "w", of: "project", load: more("Gateways") },
  { name: "offers", title: "Offers", icon: "offers", key: "p", of: "project", load: more("Offers") },
  { name: "events", title: "Events", icon: "events", key: "e", of: "project", load: more("Events") },
  { name: "past", title: "Time travel", icon: "clock", key: "t", of: "project", load: more("Past") },
  { name: "costs", title: "Costs", icon: "costs", key: "c", of: "project", shown: (session, project) => session.can("costs", project), load: more("Costs") },
  { name: "all-costs", title: "Costs of all projects", icon: "costs", of: "server", hidden: true, load: more("AllCosts") },
  { name: "settings", title: "Settings", icon: "settings", key: ",", of: "project", load: more("Settings") },
  { name: "users", title: "Users", icon: "users", key: "u", of: "server", shown: (session) => session.can("server"), load: more("Users") },
  { name: "account", title: "Your account", icon: "key", of: "server", load: more("Account") },
];

export const HOME = "overview";

/** Those that somebody sees in a project. @param {import("../data/session.js").Session} session @param {string | null} project */
export const shown = (session, project) => PAGES.filter((page) => !page.hidden && (page.of === "server" || project !== null) && (page.shown?.(session, project) ?? true));

/** @param {PageEntry} page @param {string | null} project */
export const hrefOf = (page, project) => link(page.of === "server" ? null : project, page.name);

/** The page of an address; `#/main/runs/train` is of the page `run`, if there is one. @param {string} name @param {string[]} parts */
export function pageOf(name, parts) {
  const one = name === "runs" && parts.length > 0 ? PAGES.find((page) => page.name === "run") : undefined;
  return one ?? PAGES.find((page) => page.name === name);
}
