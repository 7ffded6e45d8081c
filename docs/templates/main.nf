// From slides to embeddings with Nextflow: nextflow run main.nf -profile slurm
// Fill in these three lines.
params.slides = '/data/slides'
params.output = '/scratch/panther'
params.encoder = 'lite0'

params.parts = 10 // jobs that share the slides
features = "${params.output}/job/20x_256px_0px_overlap/features_${params.encoder}"

process SLIDES {
    cpus 8
    memory '32 GB'
    time '4h'
    errorStrategy 'retry' // a job that was killed goes on where it was
    maxRetries 3

    input:
    val part

    output:
    val part

    script: // exit code 1: some slides failed and are listed, the others are done
    """
    panther slides ${params.slides} -o ${params.output}/job --encoder ${params.encoder} \
        -j ${task.cpus} --part ${part}/${params.parts} || test \$? -eq 1
    """
}

process EMBED {
    cpus 8
    memory '32 GB'
    publishDir params.output, mode: 'copy'

    input:
    val parts

    output:
    path 'prototypes.safetensors'
    path 'slides.h5ad'

    script:
    """
    panther prototypes ${features} -C 16 -o prototypes.safetensors -j ${task.cpus} || test \$? -eq 1
    panther embed ${features} -p prototypes.safetensors -o slides.h5ad -j ${task.cpus} || test \$? -eq 1
    """
}

workflow {
    Channel.of(1..params.parts) | SLIDES | collect | EMBED
}
