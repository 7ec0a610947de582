// The report page's style: light and dark, wide and narrow, states told apart by sign and not by colour alone.
export const pageStyle = String.raw`
:root {
  color-scheme: light dark;
  --bg: #fbfaf7; --panel: #ffffff; --text: #1d1b18; --soft: #625d55; --line: #ddd8ce; --accent: #0b5d8a;
  --exact: #1c7c4a; --exact-bg: #d5f0df; --within: #23707a; --within-bg: #d6eef0; --closer: #2b57a7; --closer-bg: #dbe6fa;
  --differs: #8a5a00; --differs-bg: #fbeac4; --unsupported: #6a655d; --unsupported-bg: #ebe7df; --failed: #a3162a; --failed-bg: #fbd7db;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #16161a; --panel: #1f1f25; --text: #ecebe7; --soft: #a8a49b; --line: #3a3a43; --accent: #7cc4ee;
    --exact: #7fdca4; --exact-bg: #173b27; --within: #86d5de; --within-bg: #15363b; --closer: #9dbdf8; --closer-bg: #1d2f55;
    --differs: #f2c55c; --differs-bg: #42320f; --unsupported: #aaa69c; --unsupported-bg: #2d2d33; --failed: #ff9aa6; --failed-bg: #551822;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
header, main { max-width: 76rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
h1 { margin: 0; font-size: 1.7rem; letter-spacing: -0.01em; }
h2 { margin: 2rem 0 0.6rem; font-size: 1.15rem; }
#about, #shown, #plot-text { color: var(--soft); margin: 0.3rem 0; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: 0.5rem; background: var(--panel); padding: 0.5rem; z-index: 9; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 1px; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; }
.num { text-align: right; }
.scroll thead th { white-space: nowrap; }
#summary { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); gap: 0.8rem; }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: 0.6rem; padding: 0.7rem 0.9rem; }
.card h3 { margin: 0 0 0.2rem; font-size: 1.05rem; display: flex; justify-content: space-between; gap: 0.8rem; align-items: baseline; } .card h4 { margin: 0.7rem 0 0.25rem; font-size: 0.85rem; font-weight: 500; color: var(--soft); } .kind { font-size: 0.8rem; font-weight: 500; color: var(--soft); text-align: right; }
.bar { display: flex; height: 0.7rem; border-radius: 0.35rem; overflow: hidden; background: var(--line); }
.bar span { display: block; }
.card ul { list-style: none; margin: 0.3rem 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: 0.1rem 0.9rem; font-size: 0.85rem; }
#filters { display: flex; flex-wrap: wrap; gap: 0.6rem 1rem; align-items: end; }
#filters label { display: flex; flex-direction: column; font-size: 0.85rem; color: var(--soft); }
#filters select, #filters input[type=search] { font: inherit; padding: 0.35rem 0.5rem; min-height: 2.4rem; border: 1px solid var(--line); border-radius: 0.4rem; background: var(--panel); color: var(--text); }
#filters fieldset { border: 0; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 0.3rem; }
#filters legend { font-size: 0.85rem; color: var(--soft); padding: 0; }
#filters .chip { flex-direction: row; gap: 0.35rem; align-items: center; padding: 0.3rem 0.6rem; min-height: 2.2rem; border-radius: 1.1rem; border: 1px solid var(--line); color: var(--text); cursor: pointer; }
#matrix { max-height: 75vh; overflow: auto; border: 1px solid var(--line); border-radius: 0.6rem; background: var(--panel); }
#matrix table { border-collapse: separate; border-spacing: 0; width: 100%; }
#matrix thead th { position: sticky; top: 0; background: var(--panel); z-index: 2; text-align: center; }
#matrix tbody th { position: sticky; left: 0; background: var(--panel); z-index: 1; font-weight: 500; white-space: nowrap; vertical-align: middle; }
#matrix thead th:first-child { left: 0; z-index: 3; text-align: left; }
#matrix td { padding: 2px; text-align: center; }
#matrix .family th { position: static; color: var(--soft); font-size: 0.8rem; text-transform: uppercase; letter-spacing: 0.06em; padding-top: 0.9rem; }
#matrix button { width: 100%; min-width: 2.5rem; min-height: 2.1rem; border: 0; border-radius: 0.35rem; font: inherit; font-size: 0.85rem; cursor: pointer; }
.v-exact { background: var(--exact-bg); color: var(--exact); } .v-within { background: var(--within-bg); color: var(--within); } .v-closer { background: var(--closer-bg); color: var(--closer); }
.v-differs { background: var(--differs-bg); color: var(--differs); } .v-unsupported { background: var(--unsupported-bg); color: var(--unsupported); } .v-failed { background: var(--failed-bg); color: var(--failed); }
.f-exact { background: var(--exact); } .f-within { background: var(--within); } .f-closer { background: var(--closer); } .f-differs { background: var(--differs); } .f-unsupported { background: var(--unsupported); } .f-failed { background: var(--failed); }
.tag { display: inline-block; border-radius: 0.3rem; padding: 0 0.4rem; font-size: 0.85rem; white-space: nowrap; }
dialog { border: 1px solid var(--line); border-radius: 0.8rem; background: var(--panel); color: var(--text); width: min(60rem, calc(100vw - 1.5rem)); max-height: 88vh; padding: 1rem 1.2rem 1.4rem; overflow: auto; }
dialog::backdrop { background: rgb(0 0 0 / 0.5); }
dialog .head { display: flex; justify-content: space-between; align-items: start; gap: 1rem; position: sticky; top: -1rem; background: var(--panel); padding: 0.2rem 0; }
dialog .close { font: inherit; min-height: 2.4rem; padding: 0.2rem 0.9rem; border-radius: 0.5rem; border: 1px solid var(--line); background: var(--panel); color: var(--text); cursor: pointer; }
dialog h2 { margin-top: 0; } dialog h3 { margin: 1.1rem 0 0.3rem; font-size: 1rem; }
dialog dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 0.9rem; margin: 0; } dialog dt { color: var(--soft); } dialog dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--bg); border: 1px solid var(--line); border-radius: 0.5rem; padding: 0.7rem; overflow-x: auto; font-size: 0.82rem; line-height: 1.45; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; } svg .axis { stroke: var(--line); } svg .limit { stroke: var(--failed); stroke-width: 1.5; stroke-dasharray: 5 4; } svg circle { cursor: pointer; opacity: 0.75; }
svg .p-exact { fill: var(--exact); } svg .p-within { fill: var(--within); } svg .p-closer { fill: var(--closer); } svg .p-differs { fill: var(--differs); } svg .p-failed { fill: var(--failed); } svg rect.band { fill: var(--within); } svg rect.track { fill: var(--line); opacity: 0.5; } #bench h3 { font-size: 1rem; margin: 1rem 0 0.3rem; }
#unproved, #survivors { padding-left: 1.2rem; } #unproved li, #survivors li { margin: 0.2rem 0; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  th, td { padding: 0.25rem 0.4rem; } #matrix tbody th { max-width: 8.2rem; overflow: hidden; text-overflow: ellipsis; font-size: 0.85rem; }
  #matrix button { min-width: 2.75rem; min-height: 2.5rem; } dialog dl { grid-template-columns: 1fr; } dialog dt { margin-top: 0.4rem; } #filters label { flex: 1 1 8rem; }
}
@media (prefers-reduced-motion: no-preference) { #matrix button { transition: filter 0.15s; } #matrix button:hover { filter: brightness(0.94); } }
`;
