// Clusters: pods that are made and deleted together.
import {html, useEffect, useSignal, session, useData, Link, id, api, can, change, count, num, go} from './lib.mjs'
import {Status, Ago, Empty, Loaded, Facts, Table, Sure} from './ui.mjs'

const compute = c => `${count(c.compute.podCount, 'pod')} with ${c.compute.gpuCountPerPod} × ${c.compute.gpuTypeId}`
const Counts = ({of: c}) => html`<span class="counts">${Object.entries(c.pods.byStatus).map(([status, n]) => html`<${Status} of=${status} text=${`${num(n)} ${status.toLowerCase()}`} />`)}</span>`
const Remove = ({of: c, done}) => html`<${Sure} word=${c.id} title="Delete this cluster?" text=${`Its ${num(c.pods.total)} pods and their disks are deleted. Network volumes stay.`} yes="Delete the cluster" run=${async () => { await change('DELETE', api('clusters/' + id(c.id))); done(); return 'The cluster was deleted.' }}>Delete…<//>`

export function Clusters() {
  const s = useSignal(session), of = useData(api('clusters' + (s.operator ? '?owner=*' : '')), {every: 5000}), write = can('pods:write')
  useEffect(() => { document.title = 'Clusters · podyard' }, [])
  return html`<h1>Clusters</h1><${Loaded} of=${of}>${d => html`<${Table} tall caption="Clusters" rows=${d.clusters.map(c => c.item ? {...c.item, owner: c.owner} : c)} rowKey=${c => c.id} columns=${[
    {title: 'Cluster', cell: c => html`<${Link} to=${'clusters/' + id(c.id)}>${c.name || c.id}<//> <small class="muted">${c.id}</small>`}, s.operator ? {title: 'Owner', cell: c => c.owner} : null, {title: 'Pods', cell: c => html`<${Counts} of=${c} />`}, {title: 'Type', cell: c => c.type.toLowerCase()}, {title: 'Compute', cell: compute}, {title: 'Where', cell: c => c.dataCenterId || '–'}, {title: 'Created', cell: c => html`<${Ago} at=${c.createdAt} />`},
    write ? {title: 'Do', cell: c => html`<span class="acts"><${Remove} of=${c} done=${of.reload} /></span>`} : null,
  ].filter(Boolean)} empty=${html`<${Empty} title="There are no clusters.">Make one with <code>POST /v2/clusters</code>.<//>`} />`}<//>`
}

export function Cluster({cluster}) {
  const path = 'clusters/' + id(cluster), of = useData(api(path), {every: 3000}), pods = useData(api(path + '/pods'), {every: 3000}), name = of.data?.name || cluster
  useEffect(() => { document.title = `${name} · podyard` }, [name])
  if (of.error?.status === 404) return html`<h1 class="wide">${name}</h1><${Empty} title=${of.data ? 'The cluster was deleted.' : 'There is no such cluster, or it is not yours.'}><${Link} to="clusters">Go to the clusters<//><//>`
  return html`<nav aria-label="Path" class="path"><${Link} to="clusters">clusters<//></nav><h1 class="wide">${name} <small class="muted">${cluster}</small></h1><${Loaded} of=${of}>${c => html`
    <div class="bar"><${Counts} of=${c} />${can('pods:write') ? html`<${Remove} of=${c} done=${() => go('clusters')} />` : null}</div>
    <section aria-labelledby="cluster"><h2 id="cluster">Cluster</h2><${Facts} of=${[['Type', c.type.toLowerCase()], ['Compute', compute(c)], ['Where', c.dataCenterId || '–'], c.template ? ['Template', c.template] : null, ['SSH of rank 0', c.primary.sshEndpoint || '–'], ['Created', html`<${Ago} at=${c.createdAt} />`]]} /></section>`}<//>
    <section aria-labelledby="members"><h2 id="members">Pods</h2><${Loaded} of=${pods}>${d => html`<${Table} caption="Pods of the cluster" rows=${d.pods} rowKey=${p => p.id} columns=${[
      {title: 'Rank', num: true, cell: p => p.cluster.rank}, {title: 'Pod', cell: p => html`<${Link} to=${'pods/' + id(p.id)}><code>${p.id}</code><//>`}, {title: 'Status', cell: p => html`<${Status} of=${p.status} />`}, {title: 'Image', cell: p => html`<code>${p.image}</code>`}, {title: 'Address in its network', cell: p => p.cluster.ip || '–'},
    ]} empty=${html`<${Empty} title="It has no pods." />`} />`}<//></section>`
}
