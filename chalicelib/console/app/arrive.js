// The first thing that a page does, and whenever an open one is sent a code: it takes the code out of its address, where
// nobody should see or repeat it.
import { comeBack, redeem } from "../data/sign_on.js";
import { load } from "../data/session.js";
import { token } from "../data/token.js";
import { toastFailure } from "../kit/toast.js";
import { arrivalOf } from "../lib/arrival.js";
import { store } from "../lib/store.js";
import { go } from "./router.js";

/** What signing in by the address failed of. */
export const failedArrival = store(/** @type {any} */ (null));
export const arriving = store(false);

export async function arrive() {
  const arrival = arrivalOf(location.hash);
  if (!arrival) {
    if (token.get() !== null) await load();
    return;
  }
  go(arrival.kind === "code" ? arrival.to : "#/", { replace: true });
  arriving.set(true);
  try {
    if (arrival.kind === "code") await redeem(arrival.code);
    else {
      const to = await comeBack(arrival);
      if (to === null) return; // the browser is on its way to a command
      go(to, { replace: true });
    }
  } catch (error) {
    failedArrival.set(error);
    if (token.get() !== null) {
      toastFailure(error);
      await load(); // whoever was signed in still is
    }
  }
  arriving.set(false);
}
