// Small helpers for elements. Text is always text: nothing here reads HTML.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | EventListener | undefined>;

function fill(element: Element, attributes: Attributes, children: Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child) element.append(child);
}

/// An element of HTML; `onclick` and its like are listeners.
export function h<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  fill(element, attributes, children);
  return element;
}

/// An element of SVG.
export function s(name: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  fill(element, attributes, children);
  return element;
}

/// Text with `code` between backticks, and a paragraph for each blank line.
export function prose(text: string): DocumentFragment {
  const all = document.createDocumentFragment();
  for (const paragraph of text.split("\n\n")) {
    const parts = paragraph.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
    all.append(h("p", {}, ...parts));
  }
  return all;
}

/// A number with thin spaces between thousands, as reports have it.
export function grouped(value: number): string {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/// Takes the last of calls that come too fast, once they pause.
export function settled<A extends unknown[]>(ms: number, call: (...args: A) => void): (...args: A) => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...args), ms);
  };
}
