// The view library, with templates instead of JSX: sources run as they are, and nothing is ever read as HTML.
import htm from "htm";
import { Fragment, createContext, h, render } from "preact";
import { useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = /** @type {any} */ (htm.bind(/** @type {any} */ (h)));

export { render, Fragment, createContext, useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useContext, useId };
