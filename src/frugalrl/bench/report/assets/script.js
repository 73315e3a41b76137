"use strict";
(() => {
  const root = document.documentElement;
  const dark = () => {
    const chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };

  // ---- tables: click a heading to sort by it, again to turn the order around ----
  const key = (row, column) => {
    const value = row.cells[column].dataset.value;
    if (value === "") return null;
    const number = Number(value);
    return Number.isNaN(number) ? value : number;
  };
  const order = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b));
  };
  const sort = (table, column) => {
    const heading = table.tHead.rows[0].cells[column];
    const rising = heading.getAttribute("aria-sort") !== "ascending";
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [key(row, column), row]);
    const empty = rows.filter(([value]) => value === null);
    const full = rows.filter(([value]) => value !== null);
    full.sort(([a], [b]) => (rising ? order(a, b) : order(b, a)));
    body.append(...[...full, ...empty].map(([, row]) => row));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      heading.querySelector("button").addEventListener("click", () => sort(table, column));
    });
  }

  // ---- figures ----
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const colours = (printing) => {
    const night = dark() && !printing;
    const text = night ? "#e6e9ef" : "#1f2430";
    const grid = night ? "#2b313b" : "#e2e6ec";
    return { text, grid };
  };
  const themed = (layout, printing) => {
    const { text, grid } = colours(printing);
    const axis = {
      gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true, fixedrange: false,
    };
    // A page knows nothing of the window's width: on paper two figures stand side by side.
    const size = printing ? { width: 326, height: 246, autosize: false } : { autosize: true };
    return {
      ...layout,
      ...size,
      font: { color: text, size: printing ? 9 : 12, family: "system-ui, -apple-system, Segoe UI, Roboto, sans-serif" },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 52, r: 14, t: 8, b: 48 },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: printing ? 8 : 11 } },
      hovermode: "closest",
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      xaxis: { ...axis, ...layout.xaxis },
      yaxis: { ...axis, ...layout.yaxis },
    };
  };
  const options = { responsive: true, displaylogo: false, displayModeBar: false };
  const draw = (id) => {
    const spec = figures[id];
    const place = document.getElementById(`plot-${id}`);
    place.textContent = "";
    // A legend of many names must leave room for the curves.
    const names = spec.layout.showlegend ? spec.data.filter((it) => it.showlegend !== false) : [];
    place.style.height = `${330 + 18 * Math.max(0, names.length - 4)}px`;
    return Plotly.newPlot(place, spec.data, themed(spec.layout, false), options);
  };
  const repaint = (printing) => {
    for (const id of Object.keys(figures)) {
      const place = document.getElementById(`plot-${id}`);
      if (place.classList.contains("js-plotly-plot")) {
        Plotly.react(place, figures[id].data, themed(figures[id].layout, printing), options);
      }
    }
  };
  const drawAll = async () => {
    for (const id of Object.keys(figures)) {
      await draw(id);
      // Leave the browser time to answer the reader between two figures.
      await new Promise((next) => setTimeout(next, 0));
    }
    root.dataset.figures = "drawn";
  };

  // ---- Plotly comes compressed, which makes this file a third of the size ----
  const unpack = async () => {
    const packed = document.getElementById("plotly").textContent.trim();
    const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  };
  const start = async () => {
    if (Object.keys(figures).length === 0) return;
    if (typeof DecompressionStream === "undefined") throw new Error("an old browser");
    await unpack();
    await drawAll();
  };
  start().catch((error) => {
    for (const place of document.querySelectorAll(".plot")) {
      place.textContent = `This figure could not be drawn (${error.message}); see figures/ beside this file.`;
    }
    console.error(error);
  });

  // ---- light and dark, paper ----
  const button = document.getElementById("theme");
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    name();
    repaint(false);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { name(); repaint(false); });
  window.addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details")) fold.open = true;
    repaint(true);
  });
  window.addEventListener("afterprint", () => repaint(false));
  name();
})();
