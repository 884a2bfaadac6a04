// Who may do what, so that the page shows no button that is refused. The API remains the judge.

/** @typedef {import("../types").Verb} Verb */
/** @type {Record<Verb, string[]>} the roles in the project that each verb needs; global admins may all */
const NEEDED = {
  run: ["user", "manager", "admin"],
  fleets: ["user", "manager", "admin"],
  manage: ["manager", "admin"],
  administer: ["admin"],
  server: [],
  create_project: [],
};

/** @param {Verb} verb @param {string | null} role in the project @param {boolean} admin of the whole server */
export const may = (verb, role, admin) => admin || verb === "create_project" || (role !== null && NEEDED[verb].includes(role));
