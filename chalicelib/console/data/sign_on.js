// Signing in by something else than a typed token: an account at a provider, or a code that `dstack console` made.
import { isLocal, placeOf } from "../lib/arrival.js";
import { Problem } from "../lib/problem.js";
import { once } from "./api.js";
import { signIn } from "./session.js";

const BACK = "dstack-back"; // where the browser was when it left for a provider

/** The names of the providers that the server offers. @returns {Promise<string[]>} */
export async function providers() {
  const found = /** @type {{name: string, enabled: boolean}[]} */ (await once("POST", "auth/list_providers", null));
  return found.filter((each) => each.enabled).map((each) => each.name);
}

/** Leaves for the provider, which sends the browser back. @param {string} provider */
export async function leaveFor(provider) {
  const base = new URL(".", document.baseURI).href.replace(/\/$/, "");
  const begun = await once("POST", `auth/${encodeURIComponent(provider)}/authorize`, null, { base_url: base });
  sessionStorage.setItem(BACK, location.hash);
  location.assign(begun.authorization_url);
}

/** What came back is exchanged for a token, or passed on to the command that began. Returns where to go.
 * @param {Extract<import("../lib/arrival.js").Arrival, {kind: "sign-on"}>} arrival @returns {Promise<string | null>} */
export async function comeBack({ provider, code, state, error }) {
  const back = placeOf((sessionStorage.getItem(BACK) ?? "").slice(1));
  sessionStorage.removeItem(BACK);
  if (error) throw new Problem({ status: 0, detail: `${provider} didn’t sign you in: ${error}.`, hint: "Try again, or ask whoever manages your accounts." });
  const { redirect_url: onward } = await once("POST", "auth/get_next_redirect", null, { code, state });
  if (isLocal(onward)) {
    location.assign(onward);
    return null;
  }
  const entered = await once("POST", `auth/${encodeURIComponent(provider)}/callback`, null, { code, state });
  await signIn(entered.creds.token, { keep: false });
  return back;
}

/** @param {string} code */
export async function redeem(code) {
  const made = await once("POST", "auth/sign_in_codes/exchange", null, { code });
  await signIn(made.token, { made: true });
}
