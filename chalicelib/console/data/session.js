// Who is signed in, which projects they have, and what they may do there.
import { useEffect } from "../kit/preact.js";
import { useStore } from "../kit/use_store.js";
import { may } from "../lib/rights.js";
import { store } from "../lib/store.js";
import { all, endToken, get, once } from "./api.js";
import { dropToken, isKept, isOwn, setToken, token } from "./token.js";

/** @typedef {import("../types").Caller} User */
/** @typedef {import("../types").Project} Project */
/** @typedef {{user: User | null, projects: Project[], roles: Record<string, string | null>}} State */
/** @typedef {{user: User, projects: Project[], role: (project: string | null) => string | null,
 *   knows: (project: string | null) => boolean, can: (verb: import("../types").Verb, project?: string | null) => boolean}} Session */

const NOBODY = /** @type {State} */ ({ user: null, projects: [], roles: {} });
export const session = store(NOBODY);
export const failure = store(/** @type {any} */ (null)); // of loading it

const tabs = new BroadcastChannel("dstack-console");
tabs.addEventListener("message", (event) => event.data === "signed-out" && void leave());

/** Asks who the token is for; throws Problem if it isn't valid. @param {string} text @param {{keep?: boolean, made?: boolean}} [options] `made`: for this page */
export async function signIn(text, { keep = false, made = false } = {}) {
  const user = /** @type {User} */ (await once("GET", "v1/users/me", text));
  const before = session.get().user;
  setToken(text, { keep, made });
  if (before && before.id !== user.id) session.set(NOBODY); // another's pages aren't theirs
  await load();
}

/** Fetches who this is and their projects. */
export async function load() {
  failure.set(null);
  try {
    const [user, projects] = await Promise.all([get("/users/me"), all("/projects")]);
    projects.sort((one, two) => one.name.localeCompare(two.name));
    session.set({ user, projects, roles: {} });
  } catch (error) {
    failure.set(error);
  }
}

/** Fetches the projects again, after one was made or deleted. */
export async function reloadProjects() {
  const projects = await all("/projects");
  projects.sort((one, two) => one.name.localeCompare(two.name));
  session.set({ ...session.get(), projects });
}

/** Signs out here and in the other tabs. */
export function signOut() {
  tabs.postMessage("signed-out");
  void leave();
}

/** Also what the open page knows goes: it is loaded anew. */
async function leave() {
  const used = token.get();
  if (used === null) return;
  const made = isOwn();
  dropToken();
  session.set(NOBODY);
  history.replaceState(null, "", location.pathname);
  if (made) await endToken(used);
  location.reload();
}

export const keepsToken = isKept;
const asking = new Set();
const AGAIN = 3000; // milliseconds after a call that failed

/** The caller's role in a project, asked for once. @param {string} project */
async function loadRole(project) {
  const { user, roles } = session.get();
  if (!user || project in roles || asking.has(project)) return;
  asking.add(project);
  try {
    const members = await all(`/projects/${encodeURIComponent(project)}/members`);
    const role = members.find((member) => member.user === user.name)?.role ?? null;
    session.set({ ...session.get(), roles: { ...session.get().roles, [project]: role } });
  } catch (error) {
    const { status } = /** @type {any} */ (error);
    if (status === 403 || status === 404) session.set({ ...session.get(), roles: { ...session.get().roles, [project]: null } }); // no such project, or not theirs: the page says so
    else setTimeout(() => void loadRole(project), AGAIN);
  } finally {
    asking.delete(project);
  }
}

/** @param {string | null} [project] whose role is needed @returns {Session} */
export function useSession(project = null) {
  const state = useStore(session);
  useEffect(() => {
    if (project) void loadRole(project);
  }, [project, state.user]);
  return sessionOf(state);
}

/** @param {State} state @returns {Session} */
function sessionOf({ user, projects, roles }) {
  const role = (/** @type {string | null} */ project) => (project === null ? null : (roles[project] ?? null));
  const admin = user?.role === "admin";
  return {
    user: /** @type {User} */ (user),
    projects,
    role,
    knows: (project) => admin || project === null || project in roles, // what they may do there
    can: (verb, project = null) => may(verb, project, role(project), admin, user?.token),
  };
}
