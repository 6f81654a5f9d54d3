"use strict";

const title = document.getElementById("title");
const error = document.getElementById("error");
const cards = document.getElementById("cards");
let shown = "";
let intervalMs = 2000;

/** Return an element with a class and children. Texts are never read as HTML. */
function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function table(className, columns, rows) {
  const head = columns.length ? [element("thead", "", row("th", columns))] : [];
  return element("table", className, ...head, element("tbody", "", ...rows.map((cells) => row("td", cells))));
}

function row(tag, cells) {
  return element("tr", "", ...cells.map((cell) => element(tag, "", cell)));
}

/** Return the bar of a worker. The longest bar of the page is that of the largest load relative to its average. */
function bar(load, largest) {
  const made = element("div", `bar ${load.level}`);
  made.style.width = `${(100 * load.relative) / largest}%`;
  return made;
}

function loads(bars, largest) {
  const cells = (load) => [
    String(load.worker), load.rows.toLocaleString("en"), `${(100 * load.share).toFixed(1)}%`,
    load.relative.toFixed(2), bar(load, largest),
  ];
  return table("loads", ["worker", "rows", "share", "load / average", ""], bars.map(cells));
}

function card(content, largest) {
  const figures = content.figures.map(([label, value]) =>
    element("div", "", element("dt", "", label), element("dd", "", value)));
  const made = element("section", "card",
    element("h2", "", content.name, element("span", `state ${content.state}`, content.state)),
    element("dl", "", ...figures));
  made.append(...content.notes.map(([kind, text]) => element("p", kind, kind === "info" ? text : `${kind}: ${text}`)));
  if (content.bars.length) made.append(loads(content.bars, largest));
  for (const each of content.tables) {
    made.append(element("h3", "", each.title), table("", each.columns, each.rows));
  }
  return made;
}

function show(state) {
  title.textContent = document.title = state.title;
  error.textContent = state.error ? `error: ${state.error}` : "";
  const largest = Math.max(1, ...state.cards.flatMap((each) => each.bars.map((load) => load.relative)));
  cards.replaceChildren(...state.cards.map((each) => card(each, largest)));
}

async function update() {
  try {
    const response = await fetch("state", {cache: "no-store"});
    const text = await response.text();
    if (!response.ok) throw new Error(text);
    if (text !== shown) {
      const state = JSON.parse(text);
      intervalMs = state.interval_ms;
      show(state);
      shown = text;
    }
  } catch {
    error.textContent = "no answer: the program that serves this page has ended, or is not reachable";
    shown = "";
  }
  setTimeout(update, intervalMs);
}

update();
