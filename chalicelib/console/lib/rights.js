// Who may do what, so that the page shows no button that is refused. The API remains the judge.

/** @typedef {import("../types").Verb} Verb */
/** @typedef {import("../types").Caller["token"]} Token an access token, such as most pages have; null: the user's own */
const USERS = ["user", "manager", "admin"], MANAGERS = ["manager", "admin"], ADMINS = ["admin"];
/** @type {Record<Verb, [string[], string]>} the roles in the project that each needs (global admins may all), and the verb of an access token */
const NEEDED = {
  run: [USERS, "run"],
  run_all: [MANAGERS, "run"], // also runs of others
  fleets: [USERS, "fleets"],
  gateways: [ADMINS, "fleets"],
  costs: [MANAGERS, "read"],
  manage: [MANAGERS, "project"],
  administer: [ADMINS, "project"],
  server: [[], "server"],
  people: [[], ""], // no access token may
};

/** @param {Verb} verb @param {string | null} project @param {string | null} role in the project @param {boolean} admin of the whole server @param {Token} [token] */
export function may(verb, project, role, admin, token = null) {
  const [roles, wanted] = NEEDED[verb];
  const held = !token || (token.verbs.includes(wanted) && (token.projects.length === 0 || (project !== null && token.projects.includes(project))));
  return held && (admin || (role !== null && roles.includes(role)));
}
