"""Style sheet of the report: light and dark, for small and large screens, with colors for color-blind readers.

The palette is Okabe and Ito's, lightened where the page is dark.
"""

from __future__ import annotations

CSS = """
:root {
  --page: #fbfbf9; --card: #ffffff; --ink: #1c1f24; --soft: #5b626c; --line: #e2e3df; --grid: #ecece8;
  --c1: #0072b2; --c2: #d55e00; --c3: #009e73; --c4: #cc79a7; --c5: #56b4e9; --c6: #e69f00; --c0: #8b929c;
  --on-c1: #fff; --on-c2: #fff; --on-c3: #fff; --on-c4: #1c1f24; --on-c5: #1c1f24; --on-c6: #1c1f24; --on-c0: #1c1f24;
  --wrong: #b3261e; --wrong-page: #fdecea; --accent: #0072b2; --chip: #eef3f7;
  color-scheme: light dark;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --card: #1c2024; --ink: #e9eaec; --soft: #a2a9b3; --line: #30363d; --grid: #2a2f35;
    --c1: #4ba3dd; --c2: #f08a3c; --c3: #2fc79a; --c4: #e3a0c6; --c5: #9bd6f8; --c6: #f4c04e; --c0: #7d8590;
    --on-c1: #14171a; --on-c2: #14171a; --on-c3: #14171a; --on-c4: #14171a; --on-c5: #14171a; --on-c6: #14171a;
    --on-c0: #14171a;
    --wrong: #ff8a80; --wrong-page: #3b1f1d; --accent: #6cb6e6; --chip: #252b31;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
}
main { max-width: 1080px; margin: 0 auto; padding: 28px 18px 72px; }
h1 { font-size: clamp(1.6rem, 4.5vw, 2.3rem); line-height: 1.15; margin: 0 0 6px; letter-spacing: -0.015em; }
h2 { font-size: 1.35rem; margin: 48px 0 4px; letter-spacing: -0.01em; }
h3 { font-size: 1rem; margin: 26px 0 6px; }
p { margin: 6px 0 12px; max-width: 74ch; }
.soft, .note { color: var(--soft); }
.note { font-size: 0.86rem; }
.facts, .tiles {
  display: grid; gap: 10px; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr));
  margin: 18px 0;
}
.facts { grid-auto-flow: dense; }
.facts div.wide { grid-column: span 2; }
.facts div, .tiles div {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 10px 12px;
}
.facts b, .tiles b { display: block; font-weight: 500; font-size: 0.78rem; color: var(--soft); }
.tiles span { font-size: 1.45rem; font-weight: 650; letter-spacing: -0.02em; }
.tiles small { display: block; color: var(--soft); font-size: 0.8rem; }
.charts {
  display: grid; gap: 16px; grid-template-columns: repeat(auto-fill, minmax(min(420px, 100%), 1fr));
  margin: 14px 0;
}
figure {
  margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 14px 14px 10px;
}
figcaption { font-weight: 600; font-size: 0.92rem; margin-bottom: 4px; }
figcaption small { display: block; font-weight: 400; color: var(--soft); font-size: 0.8rem; }
svg { display: block; width: 100%; height: auto; max-width: 430px; margin: 0 auto; }
svg text {
  fill: var(--ink);
  font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
}
svg text.soft { fill: var(--soft); }
svg text.strong { font-weight: 600; }
svg text.middle { text-anchor: middle; }
svg text.end { text-anchor: end; }
svg .grid { stroke: var(--grid); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .path { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 14px; font-size: 0.8rem; color: var(--soft); margin: 6px 0 2px; }
.legend i {
  display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 5px;
  vertical-align: -1px;
}
.scroll {
  overflow-x: auto; margin: 12px 0; border: 1px solid var(--line); border-radius: 12px;
  background: var(--card);
}
table { border-collapse: collapse; width: 100%; font-size: 0.86rem; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 10px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
tbody tr:last-child td, tbody tr:last-child th { border-bottom: 0; }
thead th { font-weight: 600; color: var(--soft); font-size: 0.78rem; vertical-align: bottom; white-space: normal; }
th:first-child, td.left, th.left { text-align: left; }
tbody th { font-weight: 500; }
td.wrap, th.wrap { white-space: normal; min-width: 15em; text-align: left; }
td.none { color: var(--soft); text-align: left; white-space: normal; }
td.wrong { background: var(--wrong-page); }
td.wrong s { color: var(--wrong); }
td small { color: var(--soft); display: block; }
.tag {
  display: inline-block; font-size: 0.72rem; font-weight: 600; border-radius: 99px; padding: 1px 9px;
  background: var(--chip); color: var(--soft);
}
.tag.measured { color: var(--c3); } .tag.published { color: var(--c2); } .tag.modeled { color: var(--c4); }
.warn {
  border-left: 4px solid var(--c6); background: var(--card); padding: 8px 14px;
  border-radius: 0 10px 10px 0; margin: 12px 0;
}
details { margin: 10px 0; } summary { cursor: pointer; color: var(--accent); font-size: 0.9rem; }
nav { margin: 14px 0; font-size: 0.9rem; } nav a { color: var(--accent); margin-right: 14px; }
footer { margin-top: 56px; border-top: 1px solid var(--line); padding-top: 14px; }
@media print { figure, .scroll { break-inside: avoid; } }
"""
SERIES = ("--c5", "--c1", "--c6", "--c2", "--c3", "--c4", "--c0")  # in order, where a series has an order
