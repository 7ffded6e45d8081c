// Module: prototypes of training slides and embeddings of all, in nf-core's shape. include { PANTHER_EMBED } from './panther_embed'
process PANTHER_EMBED {
    tag "$meta.id"
    label 'process_medium'

    container "${ params.panther_container ?: 'panther-wsi:1.0.0' }" // of packaging/Dockerfile

    input:
    tuple val(meta), path(features, stageAs: 'features/*')
    path table // clinical table with case_id, slide_id and a column split; [] for none

    output:
    tuple val(meta), path("*.safetensors"), emit: prototypes
    tuple val(meta), path("*.h5ad"), emit: embeddings
    path "versions.yml", emit: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def prefix = task.ext.prefix ?: "${meta.id}"
    def training = table ? "--table ${table} --split train" : ''
    def columns = table ? "--table ${table}" : ''
    """
    panther prototypes features/ ${task.ext.args ?: '-C 16'} ${training} -o ${prefix}.safetensors -j ${task.cpus} || test \$? -eq 1
    panther embed features/ -p ${prefix}.safetensors ${columns} -o ${prefix}.h5ad -j ${task.cpus} || test \$? -eq 1

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        panther-wsi: \$(panther --version | sed 's/panther-wsi //')
    END_VERSIONS
    """

    stub:
    def prefix = task.ext.prefix ?: "${meta.id}"
    """
    touch ${prefix}.safetensors ${prefix}.h5ad versions.yml
    """
}
