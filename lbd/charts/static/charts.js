"use strict";
// Draws charts with uPlot. What comes from a chart is set as text only: names are whatever a tenant chose.
const drawChart = (() => {
  const NEAR = 14; // pixels between the pointer and a mark
  const MOST_TEXTS = 8;
  const SYMBOLS = { up: "▲", down: "▼", cross: "✕", dot: "●" };
  const root = document.documentElement;
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const drawn = [];

  function element(name, className, words = "") {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = words;
    return made;
  }

  /** Day and time of day, in UTC unless the chart is of this machine's time. */
  function stamp(chart, at, seconds = false) {
    const away = chart.local ? new Date(at * 1000).getTimezoneOffset() * 60 : 0;
    return new Date((at - away) * 1000).toISOString().slice(0, seconds ? 19 : 16).split("T");
  }

  /** Times of ticks; the first one and midnights have their day below, or of this machine's time midnights only their day. No label stands twice: ticks within a minute have seconds, and of noons the first has a label. */
  const ticks = (chart) => (u, splits, axis, space, step) => {
    const given = new Set();
    return splits.map((at, index) => {
      const [day, time] = stamp(chart, at, step < 60);
      const midnight = time === "00:00";
      const plain = step >= 86400 || (chart.local && midnight) ? day.slice(5) : time;
      const label = plain === time && !chart.local && (index === 0 || midnight) ? `${time}\n${day}` : plain;
      if (given.has(label)) return "";
      given.add(label);
      return label;
    });
  };

  function place(line, x) {
    let low = 0, high = line.x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (line.x[middle] <= x) low = middle + 1; else high = middle;
    }
    const after = line.x[low] - x < x - line.x[low - 1];
    return !line.step && after ? low : Math.max(low - 1, 0);
  }

  const few = (texts) => texts.length > MOST_TEXTS ? [...texts.slice(0, MOST_TEXTS), `and ${texts.length - MOST_TEXTS} more`] : texts;

  /** The mark under the pointer, else the line nearest above or below it; with all others in the same place. */
  function nearest(u, chart, shown) {
    const { left, top } = u.cursor;
    const at = (x, y) => [u.valToPos(x, "x"), u.valToPos(y, "y")];
    const marks = chart.marks.filter((one) => shown(one.name)).flatMap((one) => one.marks).map((mark) => {
      const [x, y] = at(mark.x, mark.y);
      return { ...mark, left: x, top: y, away: Math.hypot(x - left, y - top) };
    }).filter((mark) => mark.away <= NEAR).sort((one, other) => one.away - other.away);
    if (marks.length) {
      const same = marks.filter((mark) => Math.hypot(mark.left - marks[0].left, mark.top - marks[0].top) < 2);
      return { ...marks[0], text: few([...new Set(same.map((mark) => mark.text))]).join("\n") };
    }
    const pointed = u.posToVal(left, "x");
    const lines = chart.lines.filter((line) => shown(line.entry)).flatMap((line) => {
      const index = place(line, pointed), y = line.y[index];
      if (y === undefined || y === null) return [];
      const [x, height] = at(line.step ? Math.max(pointed, line.x[index]) : line.x[index], y);
      return [{ name: line.name, x: line.x[index], y, left: x, top: height, away: Math.abs(height - top) }];
    }).sort((one, other) => one.away - other.away);
    if (!lines.length) return null;
    const [best] = lines, same = lines.filter((line) => Math.abs(line.top - best.top) < 1);
    const when = chart.time ? `${stamp(chart, best.x).join(" ")}${chart.local ? "" : " UTC"}`
      : `${number.format(best.x)} ${chart.x_label}`;
    return { ...best, text: [...few(same.map((line) => line.name)), `${number.format(best.y)} ${chart.y_label}`, when].join("\n") };
  }

  /** Their names stand in the legend, where they cover no line. */
  function drawThresholds(u, chart) {
    const { ctx } = u, { left, top, width, height } = u.bbox, ratio = devicePixelRatio;
    ctx.save();
    ctx.lineWidth = ratio;
    ctx.setLineDash([6 * ratio, 4 * ratio]);
    for (const one of chart.thresholds) {
      const y = Math.round(u.valToPos(one.y, "y", true));
      if (y < top || y > top + height) continue;
      ctx.strokeStyle = colour(one.colour);
      ctx.stroke(new Path2D(`M${left} ${y}H${left + width}`));
    }
    ctx.restore();
  }

  function drawMarks(u, chart, shown) {
    const { ctx } = u, size = 6 * devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left - size, u.bbox.top - size, u.bbox.width + 2 * size, u.bbox.height + 2 * size);
    ctx.clip();
    for (const { symbol, name, marks } of chart.marks.filter((one) => shown(one.name))) {
      for (const mark of marks) {
        const x = u.valToPos(mark.x, "x", true), y = u.valToPos(mark.y, "y", true), tip = symbol === "up" ? -size : size;
        ctx.fillStyle = colour(mark.colour);
        ctx.strokeStyle = colour("text");
        ctx.lineWidth = (symbol === "cross" ? 2 : 1) * devicePixelRatio;
        const arm = size * .7;
        const path = new Path2D(symbol === "dot" ? "" : symbol === "cross"
          ? `M${x - arm} ${y - arm}L${x + arm} ${y + arm}M${x - arm} ${y + arm}L${x + arm} ${y - arm}`
          : `M${x - size} ${y - tip * .8}H${x + size}L${x} ${y + tip}Z`);
        if (symbol === "dot") path.arc(x, y, arm, 0, 2 * Math.PI);
        if (symbol !== "cross") ctx.fill(path);
        ctx.stroke(path);
      }
    }
    ctx.restore();
  }

  const extent = (values) => values.reduce(([low, high], one) => [Math.min(low, one), Math.max(high, one)], [Infinity, -Infinity]);

  /** What uPlot draws, how long the x axis is, and how high the y axis. */
  function prepared(chart) {
    for (const line of chart.lines) Object.assign(line, { x: chart.xs[line.x], entry: line.group || line.name });
    const marks = chart.marks.flatMap((one) => one.marks);
    const [first, last] = extent([...chart.xs.flat(), ...marks.map((mark) => mark.x)]);
    const low = chart.x_from_zero || first > last ? 0 : first, high = Math.max(low, last), pad = (high - low) / 100 || .5;
    const highest = extent([...chart.lines.flatMap((line) => line.y), ...marks.map((mark) => mark.y)])[1];
    const top = Math.max(chart.y_reaches, highest * 1.05, ...chart.thresholds.map((one) => one.y * 1.1)) || 1;
    const ends = [low - pad, high + pad];
    // The first series has no line: it makes the x axis as long as the marks need it.
    return { top, ends, data: uPlot.join([[ends, [null, null]], ...chart.lines.map((line) => [line.x, line.y])]) };
  }

  /** Draws a chart in an element, with its legend below. Returns how to show other values of the same lines. */
  function draw(plot, chart) {
    let made = prepared(chart);
    const hidden = new Set(), shown = (entry) => !hidden.has(entry);
    const size = () => ({ width: plot.clientWidth, height: chart.height || (plot.clientWidth < 600 ? 280 : 380) });
    const axis = (label) => ({
      label, labelSize: label ? 24 : 0, labelFont: "13px system-ui, sans-serif", font: "12px system-ui, sans-serif",
      stroke: () => colour("dim"), grid: { stroke: () => colour("rule"), width: 1 }, ticks: { stroke: () => colour("rule"), width: 1 },
    });
    const tooltip = element("div", "tooltip"), dot = element("div", "nearest");
    tooltip.hidden = dot.hidden = true;
    const u = new uPlot({
      ...size(), legend: { show: false }, ...(chart.local ? {} : { tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC") }),
      cursor: { points: { show: false }, y: false },
      scales: { x: { time: chart.time }, y: { range: () => [0, made.top] } },
      axes: [
        { ...axis(chart.x_label), ...(chart.time ? { values: ticks(chart) } : {}), size: chart.time && !chart.local ? 44 : 30 },
        { ...axis(chart.y_label), size: 46 },
      ],
      series: [{}, { paths: () => null, points: { show: false } }, ...chart.lines.map((line) => ({
        stroke: () => colour(line.colour), width: line.group ? 1 : 2, points: { show: line.y.length < 2 },
        paths: line.step ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear(),
      }))],
      hooks: {
        draw: [() => drawThresholds(u, chart), () => drawMarks(u, chart, shown)],
        setCursor: [() => {
          const found = u.cursor.left < 0 ? null : nearest(u, chart, shown);
          tooltip.hidden = dot.hidden = !found;
          if (!found) return;
          if (tooltip.textContent !== found.text) tooltip.textContent = found.text;
          Object.assign(dot.style, { left: `${found.left}px`, top: `${found.top}px` });
          const right = found.left > u.over.clientWidth / 2, below = found.top < u.over.clientHeight / 2;
          Object.assign(tooltip.style, {
            maxWidth: `${(right ? found.left : u.over.clientWidth - found.left) - 12}px`,
            left: right ? "auto" : `${found.left + 12}px`, right: right ? `${u.over.clientWidth - found.left + 12}px` : "auto",
            top: below ? `${found.top + 12}px` : "auto", bottom: below ? "auto" : `${u.over.clientHeight - found.top + 12}px`,
          });
        }],
      },
    }, made.data, plot);
    u.over.append(tooltip, dot);
    const key = legend(u, chart, hidden);
    plot.after(key);
    nameThresholds(key, chart);
    new ResizeObserver(() => u.setSize(size())).observe(plot);
    drawn.push([u, size]);
    return (next) => {
      const { min, max } = u.scales.x, whole = min === made.ends[0] && max === made.ends[1];
      made = prepared(Object.assign(chart, next));
      nameThresholds(key, chart);
      u.setData(made.data, whole);
      if (!whole) u.redraw();
    };
  }

  function sample(symbol, name) {
    const sign = element("i", "", symbol);
    sign.style.color = `var(--${name})`;
    sign.setAttribute("aria-hidden", "true");
    return sign;
  }

  function nameThresholds(key, chart) {
    key.querySelectorAll("span").forEach((one) => one.remove());
    for (const one of chart.thresholds) {
      const entry = element("span", "");
      entry.append(sample("╍╍", one.colour), one.name);
      key.append(entry);
    }
  }

  function legend(u, chart, hidden) {
    const entries = new Map(chart.lines.map((line) => [line.entry, ["━━", line.colour]]));
    for (const one of chart.marks) entries.set(one.name, [SYMBOLS[one.symbol], one.marks.length && one.symbol === "dot" ? one.marks[0].colour : "text"]);
    const found = element("div", "legend");
    for (const [entry, [symbol, name]] of entries) {
      const button = element("button", "");
      button.append(sample(symbol, name), entry);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        const show = hidden.delete(entry) || !hidden.add(entry);
        button.setAttribute("aria-pressed", String(show));
        chart.lines.forEach((line, index) => { if (line.entry === entry) u.setSeries(index + 2, { show }); });
        u.redraw();
      });
      found.append(button);
    }
    return found;
  }

  for (const figure of document.querySelectorAll("figure.chart")) {
    draw(figure.querySelector(".plot"), JSON.parse(figure.querySelector("script").textContent));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(([u]) => u.redraw()));
  for (const [event, printed] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => {
    root.classList.toggle("printed", printed);
    drawn.forEach(([u, size]) => { u.setSize(printed ? { width: 660, height: 300 } : size()); u.redraw(); });
  });
  return draw;
})();
